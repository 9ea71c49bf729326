//! The pre-tokenizers that GGUF files name in `tokenizer.ggml.pre`.
//!
//! A name stands for a list of regular expressions, applied one after the other, and a few defaults. The expressions
//! are those of the models' own tokenizer files.

use tokenizers::{NormalizerWrapper, normalizers::NFC};

use super::{pattern::Pattern, pipeline::Step};
use crate::error::{TextError, shown};

/// A row of the table.
pub(crate) struct PreTokenizer {
    /// The names it goes by.
    names: &'static [&'static str],
    /// Each cuts the words that the one before left; matches and what lies between them are words.
    patterns: &'static [&'static str],
    /// The model normalises text to NFC first.
    nfc: bool,
    /// Whole words that are tokens are taken as they are.
    pub(crate) ignore_merges: bool,
    /// A prompt starts with BOS unless the file says otherwise.
    pub(crate) add_bos: bool,
}

pub(crate) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

const DIGIT: &str = r"\p{N}";

const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// Qwen2 with combining marks kept on their letters.
const QWEN35: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const GPT4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const DEEPSEEK3: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
];

const BAILING: &str = concat!(
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
);

const SEED_CODER: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const fn row(names: &'static [&'static str], patterns: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer { names, patterns, nfc: false, ignore_merges: false, add_bos: false }
}

const TABLE: &[PreTokenizer] = &[
    PreTokenizer {
        ignore_merges: true,
        add_bos: true,
        ..row(&["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"], &[LLAMA3])
    },
    row(&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], &[LLAMA3]),
    PreTokenizer { nfc: true, ..row(&["qwen2"], &[QWEN2]) },
    row(&["deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"], &[QWEN2]),
    PreTokenizer { nfc: true, ..row(&["qwen35"], &[QWEN35]) },
    row(&["smollm", "starcoder", "refact", "command-r", "codeshell", "minerva-7b", "mellum2"], &[DIGIT, GPT2]),
    row(&["gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "mellum"], &[GPT2]),
    PreTokenizer { ignore_merges: true, add_bos: true, ..row(&["tekken"], &[TEKKEN]) },
    row(&["gpt-4o", "llama4", "kanana2", "minimax-m2"], &[GPT4O]),
    row(&["deepseek-v3", "hunyuan-dense", "joyai-llm"], &DEEPSEEK3),
    row(&["deepseek-coder"], &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", DIGIT]),
    row(&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING]),
    row(&["seed-coder"], &[SEED_CODER]),
    // What files written before the key existed are read with.
    row(&["default"], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"]),
];

impl PreTokenizer {
    /// Finds a row by its name in the file.
    pub(crate) fn named(name: &str) -> Result<&'static Self, TextError> {
        TABLE.iter().find(|row| row.names.contains(&name)).ok_or_else(|| TextError::UnsupportedPreTokenizer {
            found: shown(name),
            supported: TABLE.iter().flat_map(|row| row.names).copied().collect::<Vec<_>>().join(", "),
        })
    }

    /// What happens to text before the model. All of these are byte-level.
    pub(crate) fn stages(&self) -> Result<(Vec<NormalizerWrapper>, Vec<Step>), TextError> {
        let normalizers = if self.nfc { vec![NFC.into()] } else { Vec::new() };
        let splits = self.patterns.iter().map(|pattern| Pattern::regex(pattern).map(Step::isolate));
        let mut steps = splits.collect::<Result<Vec<_>, _>>()?;
        steps.extend(Step::byte_level(false, false)?);
        Ok((normalizers, steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles_and_every_name_is_listed_once() {
        let mut names: Vec<&str> = Vec::new();
        for row in TABLE {
            row.stages().unwrap();
            names.extend(row.names);
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_others() {
        let error = PreTokenizer::named("qwen9").err().unwrap().to_string();
        assert!(error.starts_with("pre-tokenizer `qwen9` is not supported; supported: llama-bpe, "), "{error}");
    }
}
