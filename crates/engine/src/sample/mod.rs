//! From a row of logits to a token, without a generator that has state.
//!
//! The order is fixed: penalties, logit bias, temperature, top-k, top-p, min-p, then the draw. What a constraint does not
//! allow is at -inf before all of them. The draw is Gumbel-max: among the survivors the token with the largest
//! `scaled logit + noise` wins, ties to the lower id, and the noise is a pure function of (seed, index of the token in its
//! sequence, token). Hence a token depends on nothing but its logits, options, history and index: not on batching, threads,
//! or how often a row was evaluated.
//!
//! The arithmetic is the definition, equal on every machine:
//! - penalties and bias are computed in f64 and rounded to f32 once each; the result is a row of logits again;
//! - `scaled logit = (logit - largest logit) / temperature` in f64;
//! - logarithms and exponentials are our own (`ln`, `weight`), never the platform's;
//! - probabilities are integers, in units of 2^-42 of the largest one, so their sums are exact and have no order.
//!
//! Hostile rows: NaN counts as -inf, and a token at -inf is never chosen; +inf counts as the largest finite f32.
//! A row with no other value is an error.

mod draw;
mod filter;
mod gumbel;
mod history;
mod ln;
mod options;
mod philox;
mod row;
#[cfg(test)]
mod tests;
mod weight;

pub use gumbel::gumbel;
pub use history::History;
pub use options::{OptionsError, SamplingOptions};
pub use philox::{noise, philox4x32};

use row::{Key, Row};

/// Checked [`SamplingOptions`]: the rule that turns logits into tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampler {
    options: SamplingOptions,
}

/// A drawn token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// Its id, an index into the logits.
    pub token: u32,
    /// What it won with: scaled logit plus noise, or 0 at temperature 0.
    pub score: f64,
}

/// Why a row of logits gives no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no token can be sampled: all {vocab} logits are NaN or -inf, expected at least one number")]
pub struct SampleError {
    /// How many logits the row has.
    pub vocab: usize,
}

/// Buffers that draws reuse. Holds nothing between calls that a result could depend on.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    adjusted: Vec<f32>,
    peaks: Vec<f32>,
    keys: Vec<Key>,
    histogram: Vec<u64>,
}

impl Sampler {
    /// Checks `options` for a model of `vocab` tokens.
    ///
    /// # Errors
    /// As [`SamplingOptions::validate`].
    pub fn new(options: SamplingOptions, vocab: usize) -> Result<Self, OptionsError> {
        options.validate(vocab)?;
        Ok(Sampler { options })
    }

    /// The options it was made of.
    pub fn options(&self) -> &SamplingOptions {
        &self.options
    }

    /// Draws the token at `index` of its sequence (prompt included, from 0) from `logits`, `[vocab]`.
    ///
    /// `history` holds the tokens before it; only penalties look at it.
    ///
    /// # Errors
    /// If every logit is NaN or -inf.
    pub fn sample(
        &self,
        logits: &[f32],
        history: &History,
        index: u64,
        scratch: &mut Scratch,
    ) -> Result<Sampled, SampleError> {
        let Scratch { adjusted, peaks, keys, histogram } = scratch;
        let options = &self.options;
        let logits = row::adjust(logits, options, history, adjusted);
        let row = Row::new(logits, peaks).ok_or(SampleError { vocab: logits.len() })?;
        if options.temperature == 0.0 {
            return Ok(Sampled { token: row.top().token(), score: 0.0 });
        }
        let survivors = filter::survivors(&row, options, keys, histogram);
        Ok(draw::draw(&row, &survivors, options, index))
    }
}
