//! A model that speaks: messages in, text out.

use std::ops::ControlFlow;
use std::path::Path;

use kapitsa_dialects::Dialect;
use kapitsa_engine::sample::SamplingOptions;
use kapitsa_engine::{Constraint, Engine, EngineError, Request, Stats, TokenLogprobs};
use kapitsa_models::ModelInfo;
use kapitsa_ops::Backend;
use kapitsa_text::{LocalTime, Message, StopMatcher, TextError, Tokenizer};
use kapitsa_vision::ImageLimits;
use kapitsa_weights::Checkpoint;

use crate::images::{ImageFile, Prompt, Vision};
use crate::stream::{ReplyEvent, ReplyStream};
use crate::text::Text;
use crate::turn::{
    Budget, Compiler, ImageData, ImageSource, Prompts, Rules, Start, TemplateInput, TurnConstraint, TurnPrompt,
    TurnRequest, TurnStream,
};
use crate::{Error, OpenOptions, open};

/// An open model with its tokenizer and chat template. Several threads can have it reply at the same time.
pub struct Llm {
    engine: Engine,
    text: Text,
    vision: Option<Vision>,
    compiler: Compiler,
    prompts: Prompts,
}

/// What to reply to, and how.
#[derive(Clone, Debug)]
pub struct ReplyRequest {
    /// From [`Llm::chat_prompt`] or [`Llm::plain_prompt`].
    pub prompt: Prompt,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// Texts that end the reply; they are not part of it.
    pub stops: Vec<String>,
    /// Longest reply in tokens.
    pub max_tokens: Option<usize>,
    /// Asks for the log-probability of every token and of so many alternatives, at most
    /// [`MAX_TOP_LOGPROBS`](crate::MAX_TOP_LOGPROBS).
    pub logprobs: Option<usize>,
}

/// What happens while a reply is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// So many tokens of the prompt are read.
    Prefill(usize),
    /// A token was chosen.
    Token {
        /// The token.
        id: u32,
        /// If they were asked for.
        logprobs: Option<&'a TokenLogprobs>,
    },
    /// More of the reply's text: whole characters, nothing of a stop text.
    Text(&'a str),
}

/// Hears of every event of a reply, and may end it.
pub type Listen<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'a;

/// How a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Why.
    pub reason: FinishReason,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the reply.
    pub reply_tokens: usize,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended its turn.
    EndOfTurn,
    /// The text ran into this stop text (its index in the request).
    StopText(usize),
    /// `max_tokens` or the context is used up.
    Length,
    /// The listener asked for no more.
    Cancelled,
}

impl FinishReason {
    /// The word that the APIs use.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::EndOfTurn | FinishReason::StopText(_) => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "cancelled",
        }
    }
}

/// A template that fails on a list of parts expects text.
fn no_place(error: Error, images: &[ImageFile]) -> Error {
    match error {
        Error::Text(TextError::TemplateRender { .. }) if !images.is_empty() => {
            Error::ImagePlaces { found: 0, expected: images.len() }
        }
        error => error,
    }
}

impl Llm {
    /// Opens a model file or folder.
    ///
    /// # Errors
    /// If the files are not a model that this build can run, or have no tokenizer.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, Error> {
        Self::open_on(path, options, None)
    }

    /// As [`open`](Self::open), on `backend` in place of this machine's own: for tests that say what the model says.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_on(path: &Path, options: &OpenOptions, backend: Option<Box<dyn Backend>>) -> Result<Self, Error> {
        let checkpoint = Checkpoint::open(path)?;
        // A tokenizer takes as long as the weights: both at once.
        std::thread::scope(|scope| {
            let text = scope.spawn(|| Text::load(&checkpoint));
            let engine = open::engine_on(&checkpoint, options, backend);
            let text = text.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (text, engine) = (text?, engine?);
            let vision = engine.vision().map(|shape| Vision::load(&checkpoint, shape, &text.tokenizer)).transpose()?;
            Ok(Llm { engine, text, vision, compiler: Compiler::default(), prompts: Prompts::default() })
        })
    }

    /// Sizes of the model.
    pub fn model(&self) -> &ModelInfo {
        self.engine.model()
    }

    /// Tokens that a conversation can hold.
    pub fn context(&self) -> usize {
        self.engine.context()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.text.tokenizer
    }

    /// Whether the model has a chat template; without one it can only continue text.
    pub fn has_chat_template(&self) -> bool {
        self.text.has_template()
    }

    /// The sampling that the model's makers recommend; greedy if they say nothing.
    pub fn default_sampling(&self) -> &SamplingOptions {
        &self.text.sampling
    }

    /// Whether messages can have images.
    pub fn sees_images(&self) -> bool {
        self.vision.is_some()
    }

    /// Image files (PNG, JPEG, WebP, GIF or BMP, up to [`ImageLimits`](crate::ImageLimits)) for
    /// [`chat_prompt`](Self::chat_prompt). Only their headers are read here.
    ///
    /// # Errors
    /// If the model sees no images, or cannot take one of these.
    pub fn image_files(&self, files: Vec<Vec<u8>>) -> Result<Vec<ImageFile>, Error> {
        match &self.vision {
            Some(vision) => {
                let file = |(index, bytes)| vision.file(bytes).map_err(|source| Error::Image { index, source });
                files.into_iter().enumerate().map(file).collect()
            }
            None if files.is_empty() => Ok(vec![]),
            None => Err(Error::NoVision),
        }
    }

    /// The prompt of a conversation, up to where the assistant's next message begins. `images` are for the parts
    /// `{"type": "image"}` of the messages, in order. `now` is for templates with a date.
    ///
    /// # Errors
    /// If the model has no template, its template refuses the messages or has no place for the images, or if an image is
    /// damaged. A prompt with images that is longer than the context is refused before they are decoded.
    pub fn chat_prompt(
        &self,
        messages: &[Message],
        images: &[ImageFile],
        now: Option<LocalTime>,
    ) -> Result<Prompt, Error> {
        let tokens = self.text.chat_prompt(messages, now).map_err(|error| no_place(error, images))?;
        self.with_images(tokens, images)
    }

    fn with_images(&self, tokens: Vec<u32>, images: &[ImageFile]) -> Result<Prompt, Error> {
        match &self.vision {
            Some(vision) => vision.prompt(tokens, images, self.context()),
            None if images.is_empty() => Ok(tokens.into()),
            None => Err(Error::NoVision),
        }
    }

    /// Files of a turn's images. Only their headers are read here.
    ///
    /// # Errors
    /// As for [`image_files`](Self::image_files), of which each image counts by its place in the request.
    pub fn turn_images(&self, request: &TurnRequest) -> Result<Vec<ImageFile>, Error> {
        let limits = ImageLimits::default();
        let file = |(index, image): (usize, &ImageSource)| {
            let bytes = match &image.data {
                ImageData::Url(url) => kapitsa_vision::from_data_url(url, &limits),
                ImageData::Base64(text) => kapitsa_vision::from_base64(text, &limits),
            };
            bytes.map_err(|source| Error::Image { index, source })
        };
        if self.vision.is_none() && !request.images.is_empty() {
            return Err(Error::NoVision);
        }
        self.image_files(request.images.iter().enumerate().map(file).collect::<Result<_, _>>()?)
    }

    /// Tokens of a turn's prompt; no image is decoded for this.
    ///
    /// # Errors
    /// As for [`start_turn`](Self::start_turn).
    pub fn count_turn(
        &self,
        request: &TurnRequest,
        images: &[ImageFile],
        now: Option<LocalTime>,
    ) -> Result<usize, Error> {
        let TurnPrompt { tokens, .. } = self.turn_prompt(request, images, now)?;
        match &self.vision {
            Some(vision) => vision.count(&tokens, images),
            None if images.is_empty() => Ok(tokens.len()),
            None => Err(Error::NoVision),
        }
    }

    /// Starts a turn. `images` are from [`turn_images`](Self::turn_images), `now` is for templates with a date. Reading a long
    /// prompt into tokens takes a while; the device is not waited for.
    ///
    /// # Errors
    /// If the request cannot be served as it is, if too many are waiting, or if the engine has stopped.
    pub fn start_turn(
        &self,
        request: &TurnRequest,
        images: &[ImageFile],
        now: Option<LocalTime>,
    ) -> Result<TurnStream, Error> {
        Ok(self.start_turns(request, images, now, 1)?.remove(0))
    }

    /// As [`start_turn`](Self::start_turn), several times over. Seeds count up, so that turns differ.
    ///
    /// # Errors
    /// As for [`start_turn`](Self::start_turn); then none is started.
    pub fn start_turns(
        &self,
        request: &TurnRequest,
        images: &[ImageFile],
        now: Option<LocalTime>,
        count: usize,
    ) -> Result<Vec<TurnStream>, Error> {
        let (prompt, start) = self.turn_tokens(request, images, now)?;
        let tokens = self.prompts.note(prompt, &self.text.tokenizer);
        let dialect = self.text.dialect().unwrap_or(Dialect::HermesJson);
        let constraint = self.turn_constraint(request, dialect, start)?;
        let first = ReplyRequest {
            prompt: self.with_images(tokens, images)?,
            sampling: request.sampling.over(self.default_sampling(), fastrand::u64(..)),
            stops: request.stops.clone(),
            max_tokens: request.max_tokens,
            logprobs: request.logprobs,
        };
        let turn = |index: u64| {
            let mut reply = first.clone();
            reply.sampling.seed = reply.sampling.seed.wrapping_add(index);
            let constraint = constraint.clone().map(|constraint| Box::new(constraint) as Box<dyn Constraint>);
            Ok(TurnStream::new(self.start_within(reply, constraint)?, dialect, request, start == Start::Thinks))
        };
        (0..count as u64).map(turn).collect()
    }

    /// What a turn is held to, if it is held to anything.
    fn turn_constraint(
        &self,
        request: &TurnRequest,
        dialect: Dialect,
        start: Start,
    ) -> Result<Option<TurnConstraint>, Error> {
        let tokenizer = &self.text.tokenizer;
        let budget = request.thinking.budget.map(|tokens| Budget::new(tokenizer, tokens, start)).transpose()?;
        let matcher = match Rules::new(request, dialect, start)? {
            None => None,
            Some(rules) => {
                let TurnRequest { tool_choice, one_call, format, .. } = request;
                let key = format!("{:?}", (start, request.offered_tools(), tool_choice, one_call, format));
                Some(self.compiler.compile(tokenizer, key, &rules)?.matcher())
            }
        };
        Ok((matcher.is_some() || budget.is_some()).then_some(TurnConstraint { matcher, budget }))
    }

    /// The prompt of a turn before images take their places, as [`start_turn`](Self::start_turn) has it.
    ///
    /// # Errors
    /// As for [`start_turn`](Self::start_turn).
    pub fn turn_prompt(
        &self,
        request: &TurnRequest,
        images: &[ImageFile],
        now: Option<LocalTime>,
    ) -> Result<TurnPrompt, Error> {
        Ok(self.turn_tokens(request, images, now)?.0)
    }

    fn turn_tokens(
        &self,
        request: &TurnRequest,
        images: &[ImageFile],
        now: Option<LocalTime>,
    ) -> Result<(TurnPrompt, Start), Error> {
        let input = TemplateInput::new(request, self.text.dialect().is_some());
        let (tokens, start) = self.text.turn_prompt(&input, now).map_err(|error| no_place(error, images))?;
        Ok((TurnPrompt { input, tokens }, start))
    }

    /// The prompt of a text to be continued; no spelling in it is a control token.
    ///
    /// # Errors
    /// If the vocabulary cannot express the text.
    pub fn plain_prompt(&self, text: &str) -> Result<Prompt, Error> {
        let everything = std::iter::once(0..text.len()).collect();
        let prompt = kapitsa_text::Prompt { text: text.into(), plain: everything };
        Ok(self.text.tokenizer.encode_prompt(&prompt)?.into())
    }

    /// Starts a reply. Never waits for the device.
    ///
    /// # Errors
    /// If the request cannot be served as it is, if too many are waiting, or if the engine has stopped.
    pub fn start(&self, request: ReplyRequest) -> Result<ReplyStream, Error> {
        self.start_within(request, None)
    }

    fn start_within(
        &self,
        request: ReplyRequest,
        constraint: Option<Box<dyn Constraint>>,
    ) -> Result<ReplyStream, Error> {
        let stops = StopMatcher::new(&request.stops)?;
        let prompt_tokens = request.prompt.tokens.len();
        let generation = self.engine.submit(Request {
            prompt: request.prompt.tokens,
            images: request.prompt.images,
            sampling: request.sampling,
            stop_tokens: self.text.tokenizer.eos_ids().to_vec(),
            max_tokens: request.max_tokens,
            logprobs: request.logprobs,
            constraint,
        })?;
        Ok(ReplyStream::new(generation, self.text.tokenizer.clone(), stops, prompt_tokens))
    }

    /// Replies to a prompt. `listen` hears of every event and may end the reply; while it works, the engine may get some
    /// tokens ahead of it, but not far.
    ///
    /// # Errors
    /// If the request cannot be served or the device fails.
    pub fn reply(&self, request: &ReplyRequest, listen: &mut Listen<'_>) -> Result<Reply, Error> {
        let mut stream = self.start(request.clone())?;
        loop {
            let heard = match stream.recv().unwrap_or(Err(EngineError::Stopped.into()))? {
                ReplyEvent::Prefill(read) => listen(Event::Prefill(read)),
                ReplyEvent::Piece { text, tokens } => {
                    let mut tokens =
                        tokens.iter().map(|token| Event::Token { id: token.id, logprobs: token.logprobs.as_ref() });
                    let heard = tokens.try_for_each(&mut *listen);
                    if heard.is_continue() && !text.is_empty() { listen(Event::Text(&text)) } else { heard }
                }
                ReplyEvent::Finished(reply) => return Ok(reply),
            };
            if heard.is_break() {
                stream.cancel();
            }
        }
    }

    /// Fails if slots and queue are full now: to know before a long prompt is made into tokens. It counts as a refused
    /// request.
    ///
    /// # Errors
    /// If too many are waiting, or if the engine has stopped.
    pub fn check_room(&self) -> Result<(), Error> {
        Ok(self.engine.check_room()?)
    }

    /// What the engine has done so far, and how busy it is.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Whether it still replies. It does not once it is stopped, nor after a crash of the engine.
    pub fn is_alive(&self) -> bool {
        self.engine.is_alive()
    }

    /// Ends all replies with an error; no more are made.
    pub fn stop(&self) {
        self.engine.stop();
    }
}

/// Opens the tokenizer of a model without its weights.
///
/// # Errors
/// As [`Llm::open`].
pub fn open_tokenizer(path: &Path) -> Result<Tokenizer, Error> {
    Ok(Text::load(&Checkpoint::open(path)?)?.into_tokenizer())
}
