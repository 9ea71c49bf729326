//! What a request may ask of the sampler.

use std::collections::BTreeMap;

/// Temperature and friends. The default changes nothing: it samples the model's own distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingOptions {
    /// Divides the logits; 0 takes the largest logit. 0 or more.
    pub temperature: f64,
    /// Keep the k largest logits; 0 keeps all.
    pub top_k: usize,
    /// Keep the likeliest tokens until their probabilities reach this, 0 to 1. 1 keeps all; one token always stays.
    pub top_p: f64,
    /// Keep tokens at least this likely, relative to the likeliest, 0 to 1. 0 keeps all.
    pub min_p: f64,
    /// Divides positive logits and multiplies the others, for tokens of prompt or reply. Above 0; 1 does nothing.
    pub repetition_penalty: f64,
    /// Subtracted from the logits of tokens in the reply, -2 to 2.
    pub presence_penalty: f64,
    /// Subtracted from the logits of tokens in the reply once for each time they occur, -2 to 2.
    pub frequency_penalty: f64,
    /// Added to the logits of these tokens, -100 to 100.
    pub logit_bias: BTreeMap<u32, f64>,
    /// Key of the noise: the same seed and the same logits give the same tokens.
    pub seed: u64,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        SamplingOptions {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: BTreeMap::new(),
            seed: 0,
        }
    }
}

/// A sampling option outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}, expected {allowed}")]
pub struct OptionsError {
    /// Name of the field.
    pub field: &'static str,
    /// Its value.
    pub found: String,
    /// What would do.
    pub allowed: String,
}

impl SamplingOptions {
    /// Checks every field, for a model of `vocab` tokens.
    ///
    /// # Errors
    /// Names the first field that is not a number or outside its range, what it is and what it may be.
    pub fn validate(&self, vocab: usize) -> Result<(), OptionsError> {
        let check = |field, value: f64, ok: bool, allowed: &str| {
            if ok && value.is_finite() {
                return Ok(());
            }
            Err(OptionsError { field, found: value.to_string(), allowed: allowed.to_owned() })
        };
        let within = |field, value: f64, low: f64, high: f64| {
            check(field, value, (low..=high).contains(&value), &format!("a number from {low} to {high}"))
        };
        check("temperature", self.temperature, self.temperature >= 0.0, "a number of at least 0")?;
        within("top_p", self.top_p, 0.0, 1.0)?;
        within("min_p", self.min_p, 0.0, 1.0)?;
        check("repetition_penalty", self.repetition_penalty, self.repetition_penalty > 0.0, "a number above 0")?;
        within("presence_penalty", self.presence_penalty, -2.0, 2.0)?;
        within("frequency_penalty", self.frequency_penalty, -2.0, 2.0)?;
        for (&token, &bias) in &self.logit_bias {
            if token as usize >= vocab {
                let allowed = format!("ids below the vocabulary size {vocab}");
                return Err(OptionsError { field: "logit_bias", found: format!("for token {token}"), allowed });
            }
            if !(-100.0..=100.0).contains(&bias) {
                let found = format!("{bias} for token {token}");
                return Err(OptionsError { field: "logit_bias", found, allowed: "a number from -100 to 100".into() });
            }
        }
        Ok(())
    }

    /// Whether any option needs the [`History`](super::History).
    pub fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(change: impl FnOnce(&mut SamplingOptions)) -> String {
        let mut options = SamplingOptions::default();
        change(&mut options);
        options.validate(100).expect_err("should be refused").to_string()
    }

    #[test]
    fn options_outside_their_range_are_named() {
        assert_eq!(error(|o| o.temperature = -0.5), "temperature is -0.5, expected a number of at least 0");
        assert_eq!(error(|o| o.temperature = f64::NAN), "temperature is NaN, expected a number of at least 0");
        assert_eq!(error(|o| o.temperature = f64::INFINITY), "temperature is inf, expected a number of at least 0");
        assert_eq!(error(|o| o.top_p = 1.01), "top_p is 1.01, expected a number from 0 to 1");
        assert_eq!(error(|o| o.top_p = f64::NAN), "top_p is NaN, expected a number from 0 to 1");
        assert_eq!(error(|o| o.min_p = -1e-9), "min_p is -0.000000001, expected a number from 0 to 1");
        assert_eq!(error(|o| o.repetition_penalty = 0.0), "repetition_penalty is 0, expected a number above 0");
        assert_eq!(
            error(|o| o.repetition_penalty = f64::INFINITY),
            "repetition_penalty is inf, expected a number above 0"
        );
        assert_eq!(error(|o| o.presence_penalty = 2.1), "presence_penalty is 2.1, expected a number from -2 to 2");
        assert_eq!(error(|o| o.frequency_penalty = -3.0), "frequency_penalty is -3, expected a number from -2 to 2");
        assert_eq!(
            error(|o| o.logit_bias = BTreeMap::from([(100, 1.0)])),
            "logit_bias is for token 100, expected ids below the vocabulary size 100"
        );
        assert_eq!(
            error(|o| o.logit_bias = BTreeMap::from([(7, f64::NEG_INFINITY)])),
            "logit_bias is -inf for token 7, expected a number from -100 to 100"
        );
    }

    #[test]
    fn the_ends_of_the_ranges_are_allowed() {
        let mut options = SamplingOptions { temperature: 0.0, top_p: 0.0, min_p: 1.0, ..Default::default() };
        options.logit_bias = BTreeMap::from([(0, -100.0), (99, 100.0)]);
        assert_eq!(options.validate(100), Ok(()));
        options = SamplingOptions { presence_penalty: -2.0, frequency_penalty: 2.0, ..Default::default() };
        assert_eq!(options.validate(0), Ok(()));
    }
}
