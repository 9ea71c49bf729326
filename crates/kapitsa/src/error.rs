//! The one error of the facade: a line for the user.

use std::path::PathBuf;

use kapitsa_engine::EngineError;
use kapitsa_grammar::GrammarError;
use kapitsa_hub::HubError;
use kapitsa_ops::DeviceError;
use kapitsa_text::TextError;
use kapitsa_vision::ImageError;
use kapitsa_weights::LoadError;

/// What went wrong, in one line that names the next step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The model's files.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The request.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Tokenizer, template or stop texts.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Finding a model by name, and bringing it here.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// Weights alone.
    #[error("{path}: there is no tokenizer beside the weights; put tokenizer.json there, or use `kapitsa logits`")]
    NoTokenizer {
        /// The model's config or file.
        path: PathBuf,
    },
    /// A base model.
    #[error("the model has no chat template; it can only continue text")]
    NoTemplate,
    /// Images for a model without a vision tower.
    #[error("the model sees no images; send text only")]
    NoVision,
    /// What the model's files say about images.
    #[error(transparent)]
    ImageSettings(ImageError),
    /// An image of a conversation.
    #[error("image {}: {source}", index + 1)]
    Image {
        /// Which of them, from 0.
        index: usize,
        /// What is wrong.
        source: ImageError,
    },
    /// A chat template that writes other images than the messages have.
    #[error("the model's chat template {}", match found {
        0 => "has no place for images in these messages; send text only".into(),
        _ => format!("makes {found} places for {expected} images; send fewer or none"),
    })]
    ImagePlaces {
        /// Image tokens that it wrote.
        found: usize,
        /// Images of the messages.
        expected: usize,
    },
    /// What a request asks of an answer and cannot be enforced.
    #[error("{place}: {source}")]
    Grammar {
        /// Where the request asks for it.
        place: String,
        /// What is wrong.
        source: GrammarError,
    },
    /// A context that the model does not have.
    #[error("context is {found}, expected 1 to {trained}: the model was trained for {trained} tokens")]
    Context {
        /// What was asked for.
        found: usize,
        /// What the model has.
        trained: usize,
    },
    /// A context that memory does not hold.
    #[error(
        "a context of {context} tokens needs {} bytes ({token_bytes} a token), the memory left holds {fits} tokens; \
         ask for --context {fits} or less, or end other programs",
        context.saturating_mul(*token_bytes)
    )]
    Memory {
        /// What was asked for.
        context: usize,
        /// Bytes of the KV cache for each token.
        token_bytes: usize,
        /// Tokens that would fit.
        fits: usize,
    },
}
