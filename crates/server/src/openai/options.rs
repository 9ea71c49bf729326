//! Fields that Chat Completions and Completions share.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use kapitsa::SamplingOptions;
use kapitsa::turn::SamplingChanges;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::ApiError;

/// Most replies that a request can ask for, over all its prompts.
pub(super) const MAX_CHOICES: usize = 32;
/// Most stop texts, and the bytes of each.
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;

/// How to reply. Whatever is absent or null is as the model's makers recommend.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct Options {
    /// Any name is served by the loaded model, unless the server takes names strictly.
    pub(super) model: Option<String>,
    /// Send the reply while it is made, as server-sent events.
    #[serde(default)]
    pub(super) stream: Option<bool>,
    pub(super) stream_options: Option<StreamOptions>,
    /// Replies to make. Each takes a slot.
    #[schema(minimum = 1, maximum = 32)]
    n: Option<i64>,
    /// A text that ends the reply, or several; not part of it.
    stop: Option<Stop>,
    /// The same seed gives the same reply. Reply `i` of several has the seed plus `i`.
    seed: Option<i64>,
    /// 0 takes the likeliest token.
    #[schema(minimum = 0)]
    temperature: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    /// Keep the k likeliest tokens; 0 and -1 keep all.
    #[schema(minimum = -1)]
    top_k: Option<i64>,
    #[schema(minimum = 0, maximum = 1)]
    min_p: Option<f64>,
    #[schema(minimum = -2, maximum = 2)]
    frequency_penalty: Option<f64>,
    #[schema(minimum = -2, maximum = 2)]
    presence_penalty: Option<f64>,
    /// Above 0; 1 does nothing.
    repetition_penalty: Option<f64>,
    /// Token ids and what to add to their logits, -100 to 100.
    logit_bias: Option<BTreeMap<String, f64>>,
    /// Longest reply in tokens. More than the context leaves is as much as it leaves.
    #[schema(minimum = 1)]
    max_tokens: Option<i64>,
}

#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct StreamOptions {
    /// End the stream with a chunk that has `usage` and no choices.
    pub(super) include_usage: Option<bool>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
enum Stop {
    One(String),
    Several(Vec<String>),
}

impl Options {
    /// Replies for each prompt.
    pub(super) fn replies(&self) -> Result<usize, ApiError> {
        match self.n {
            None => Ok(1),
            Some(n) if (1..=MAX_CHOICES as i64).contains(&n) => Ok(n as usize),
            Some(n) => Err(ApiError::field("n", format!("n is {n}, expected 1 to {MAX_CHOICES}"))),
        }
    }

    pub(super) fn streams(&self) -> bool {
        self.stream == Some(true)
    }

    pub(super) fn includes_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.include_usage) == Some(true)
    }

    pub(super) fn max_tokens(&self) -> Result<Option<usize>, ApiError> {
        length("max_tokens", self.max_tokens)
    }

    pub(super) fn stops(&self) -> Result<Vec<String>, ApiError> {
        let stops = match &self.stop {
            None => vec![],
            Some(Stop::One(stop)) => vec![stop.clone()],
            Some(Stop::Several(stops)) => stops.clone(),
        };
        if stops.len() > MAX_STOPS {
            return Err(ApiError::field(
                "stop",
                format!("stop has {} texts, expected at most {MAX_STOPS}", stops.len()),
            ));
        }
        match stops.iter().find(|stop| stop.is_empty() || stop.len() > MAX_STOP_BYTES) {
            None => Ok(stops),
            Some(stop) => {
                let message = format!("a stop text has {} bytes, expected 1 to {MAX_STOP_BYTES}", stop.len());
                Err(ApiError::field("stop", message))
            }
        }
    }

    /// The model's own sampling, with what the request says in its place.
    pub(super) fn sampling(&self, model: &SamplingOptions) -> Result<SamplingOptions, ApiError> {
        // The standard library's hash keys are random: no generator is needed for one number.
        Ok(self.changes()?.over(model, RandomState::new().build_hasher().finish()))
    }

    /// What the request says of sampling.
    pub(super) fn changes(&self) -> Result<SamplingChanges, ApiError> {
        let top_k = match self.top_k {
            None => None,
            Some(k) if k >= -1 => Some(k.max(0) as usize),
            Some(k) => return Err(ApiError::field("top_k", format!("top_k is {k}, expected -1 or more"))),
        };
        let mut logit_bias = BTreeMap::new();
        for (id, &bias) in self.logit_bias.iter().flatten() {
            let id = id.parse().map_err(|_| {
                let shown: String = id.chars().take(40).collect();
                ApiError::field("logit_bias", format!("logit_bias is for `{shown}`, expected ids of tokens"))
            })?;
            logit_bias.insert(id, bias);
        }
        Ok(SamplingChanges {
            temperature: self.temperature,
            top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias,
            seed: self.seed.map(|seed| seed as u64),
        })
    }
}

/// A number of tokens, at least one.
pub(super) fn length(name: &str, tokens: Option<i64>) -> Result<Option<usize>, ApiError> {
    match tokens {
        None => Ok(None),
        Some(tokens) if tokens >= 1 => Ok(Some(usize::try_from(tokens).unwrap_or(usize::MAX))),
        Some(tokens) => Err(ApiError::field(name, format!("{name} is {tokens}, expected at least 1"))),
    }
}
