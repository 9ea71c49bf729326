//! The text side of a checkpoint: tokenizer, chat template, ends of a reply, sampling defaults.

use std::sync::Arc;

use kapitsa_dialects::Dialect;
use kapitsa_engine::sample::SamplingOptions;
use kapitsa_text::{ChatTemplate, GgufVocabulary, LocalTime, Message, RenderOptions, Tokenizer};
use kapitsa_weights::gguf::Metadata;
use kapitsa_weights::{Checkpoint, Config, TokenizerFiles};
use serde_json::{Map, Value};

use crate::turn::{Start, TemplateInput};
use crate::{Error, history};

/// What turns messages into tokens and tokens into text.
pub(crate) struct Text {
    pub(crate) tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
    pub(crate) sampling: SamplingOptions,
}

impl Text {
    pub(crate) fn load(checkpoint: &Checkpoint) -> Result<Self, Error> {
        let config = checkpoint.config();
        let (mut tokenizer, template, generation) = match checkpoint.tokenizer_files()? {
            TokenizerFiles::HuggingFace { tokenizer_json, tokenizer_config, chat_template, generation_config } => {
                let tokenizer = Tokenizer::from_json(&tokenizer_json, tokenizer_config.as_deref())?;
                let template = match (chat_template, &tokenizer_config) {
                    (Some(source), _) => Some(ChatTemplate::new(&source)?),
                    (None, Some(config)) => ChatTemplate::from_tokenizer_config(config)?,
                    (None, None) => None,
                };
                let generation = generation_config.map(|text| Config::from_json(config.path(), &text)).transpose()?;
                (tokenizer, template, generation)
            }
            TokenizerFiles::Gguf(metadata) => {
                let tokenizer = Tokenizer::from_gguf(vocabulary(metadata)?)?;
                let template = metadata.opt_str("tokenizer.chat_template")?.map(ChatTemplate::new).transpose()?;
                (tokenizer, template, None)
            }
            TokenizerFiles::Absent => return Err(Error::NoTokenizer { path: config.path().into() }),
        };
        if let Some(template) = &template {
            tokenizer.guard_template_tokens(template.source());
            tokenizer.show_tokens(kapitsa_dialects::MARKUP);
        }
        for config in [Some(config), generation.as_ref()].into_iter().flatten() {
            let ids = config.token_ids("eos_token_id")?;
            let known: Vec<u32> = ids.into_iter().filter(|&id| (id as usize) < tokenizer.vocab_len()).collect();
            tokenizer.add_eos_ids(&known)?;
        }
        let sampling = generation.map_or(Ok(greedy()), |config| sampling_defaults(&config))?;
        Ok(Text { tokenizer: Arc::new(tokenizer), template, sampling })
    }

    /// Tokens of a conversation, up to where the assistant's next message begins.
    pub(crate) fn chat_prompt(&self, messages: &[Message], now: Option<LocalTime>) -> Result<Vec<u32>, Error> {
        let (messages, tools, variables) = (messages.to_vec(), Value::Null, Map::new());
        Ok(self.turn_prompt(&TemplateInput { messages, tools, variables }, now)?.0)
    }

    /// Tokens of the prompt of a turn, and where it leaves the model.
    pub(crate) fn turn_prompt(
        &self,
        input: &TemplateInput,
        now: Option<LocalTime>,
    ) -> Result<(Vec<u32>, Start), Error> {
        let template = self.template.as_ref().ok_or(Error::NoTemplate)?;
        let is_off = input.variables.get(ENABLE_THINKING) == Some(&Value::Bool(false));
        let options = RenderOptions {
            add_generation_prompt: true,
            tokenizer: Some(&self.tokenizer),
            tools: Some(&input.tools).filter(|tools| !tools.is_null()).cloned(),
            variables: input.variables.clone(),
            now,
        };
        let mut prompt = history::render(&input.messages, |messages| template.render(messages, &options))?;
        let mut start = start(template.source(), &prompt.text);
        if is_off && start != Start::Answer && !template.source().contains(ENABLE_THINKING) {
            // A template without the switch: what those with one write.
            prompt.text += if start == Start::Thinks { "\n</think>\n\n" } else { "<think>\n\n</think>\n\n" };
            start = Start::Answer;
        }
        Ok((self.tokenizer.encode_prompt(&prompt)?, start))
    }

    /// How the model writes calls, if its template has a place for tools.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        Dialect::detect(self.template.as_ref()?.source())
    }

    pub(crate) fn into_tokenizer(self) -> Tokenizer {
        Arc::unwrap_or_clone(self.tokenizer)
    }

    pub(crate) fn has_template(&self) -> bool {
        self.template.is_some()
    }
}

/// The variable that switches thinking on or off, where a template has one.
const ENABLE_THINKING: &str = "enable_thinking";

/// Where a prompt leaves the model. Models whose templates know of thinking may open it themselves.
fn start(template: &str, prompt: &str) -> Start {
    let end = prompt.trim_end();
    match template.contains("<think>") {
        _ if end.ends_with("<think>") => Start::Thinks,
        true if !end.ends_with("</think>") => Start::MayThink,
        _ => Start::Answer,
    }
}

/// The keys `tokenizer.ggml.*`.
fn vocabulary(metadata: &Metadata) -> Result<GgufVocabulary, Error> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let strings = |name: &str| -> Result<Option<Vec<String>>, Error> {
        Ok(metadata.opt_strings(&key(name))?.map(|list| list.iter().map(String::from).collect()))
    };
    let id = |name: &str| metadata.opt_u32(&key(name));
    let flag = |name: &str| metadata.opt_bool(&key(name));
    let model = metadata.opt_str(&key("model"))?.ok_or_else(|| metadata.error(&key("model"), "is missing"))?;
    Ok(GgufVocabulary {
        model: model.into(),
        pre: metadata.opt_str(&key("pre"))?.map(String::from),
        tokens: strings("tokens")?.ok_or_else(|| metadata.error(&key("tokens"), "is missing"))?,
        scores: metadata.opt_f32s(&key("scores"))?,
        token_types: metadata.opt_u32s(&key("token_type"))?.map(|types| types.into_iter().map(|t| t as i32).collect()),
        merges: strings("merges")?,
        bos: id("bos_token_id")?,
        eos: id("eos_token_id")?,
        eot: id("eot_token_id")?,
        eom: id("eom_token_id")?,
        unknown: id("unknown_token_id")?,
        padding: id("padding_token_id")?,
        add_bos: flag("add_bos_token")?,
        add_space_prefix: flag("add_space_prefix")?,
    })
}

fn greedy() -> SamplingOptions {
    SamplingOptions { temperature: 0.0, ..SamplingOptions::default() }
}

/// What the model's makers recommend in `generation_config.json`; greedy where they do not sample.
fn sampling_defaults(config: &Config) -> Result<SamplingOptions, Error> {
    if !config.bool_or("do_sample", false)? {
        return Ok(greedy());
    }
    let number = |key, default| Ok::<f64, Error>(config.opt_f32(key)?.map_or(default, f64::from));
    let none = SamplingOptions::default();
    Ok(SamplingOptions {
        temperature: number("temperature", none.temperature)?,
        top_k: config.usize_or("top_k", none.top_k)?,
        top_p: number("top_p", none.top_p)?,
        min_p: number("min_p", none.min_p)?,
        repetition_penalty: number("repetition_penalty", none.repetition_penalty)?,
        ..none
    })
}
