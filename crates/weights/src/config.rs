//! A model's configuration with Hugging Face key names, whatever the container.
//!
//! Configurations differ by the age of the tool that wrote them. They are brought to one spelling when they are read:
//! `rope_parameters` holds `rope_theta`, `rope_type` and the scaling, and answers for `rope_theta` + `rope_scaling`; the
//! keys in `ALIASES` stand for each other; numbers may be spelled `{"__float__": "Infinity"}` or, not being JSON, as a
//! bare `Infinity`. Keys of a nested `text_config` (or `llm_config`) come first, those beside it second; `model_type` is always the outer
//! one.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::LoadError;
use crate::error::short;

/// Keys with the same meaning.
const ALIASES: &[(&str, &str)] = &[
    ("num_experts", "num_local_experts"),
    ("dtype", "torch_dtype"),
    ("head_dim", "attention_head_dim"),
    ("layer_norm_epsilon", "norm_eps"),
    ("n_groups", "mamba_n_groups"),
    ("conv_kernel", "mamba_d_conv"),
    ("time_step_limit", "mamba_dt_limit"),
];

/// Where a model of several kinds has the settings of its language model.
const NESTED: &[&str] = &["text_config", "llm_config"];

/// Keys that live in `rope_parameters` in new files and at the top in old ones; both places answer.
const ROPE_KEYS: &[&str] = &["rope_theta", "partial_rotary_factor"];

/// Largest integer that [`Config::usize`] returns, so that products of two cannot overflow.
const MAX_INTEGER: u64 = u32::MAX as u64;

/// A model's configuration, or a section of it. `null` counts as absent.
#[derive(Clone, Debug)]
pub struct Config {
    values: Map<String, Value>,
    /// What holds where `values` has nothing.
    base: Option<Arc<Map<String, Value>>>,
    /// Keys of the enclosing sections, joined with dots and ending in one; empty at the root.
    section: String,
    source: Arc<Source>,
}

#[derive(Debug)]
struct Source {
    path: PathBuf,
    /// For GGUF: the key of the file behind a key of ours.
    origins: BTreeMap<String, String>,
}

impl Config {
    /// Reads the text of a `config.json`; `path` is for messages.
    ///
    /// # Errors
    /// If the text is not a JSON object.
    pub fn from_json(path: &Path, text: &str) -> Result<Self, LoadError> {
        let fail = |reason: String| LoadError::malformed(path, format!("{reason}; fetch the file again"));
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(error) => match quote_bare_floats(text).map(|text| serde_json::from_str(&text)) {
                Some(Ok(value)) => value,
                _ => return Err(fail(format!("is not JSON: {error}"))),
            },
        };
        let Value::Object(mut values) = value else {
            return Err(fail(format!("holds {}, expected a JSON object", describe(&value))));
        };
        if let Some(Value::Object(text_config)) = NESTED.iter().find_map(|key| values.get(*key)).cloned() {
            for (key, value) in text_config {
                if !value.is_null() && !matches!(key.as_str(), "model_type" | "architectures") {
                    values.insert(key, value);
                }
            }
        }
        Ok(Self::new(path, values, BTreeMap::new()))
    }

    /// A configuration from values that are not in a JSON file. `origins` maps keys to the file's own spelling.
    pub(crate) fn new(path: &Path, mut values: Map<String, Value>, origins: BTreeMap<String, String>) -> Self {
        values.retain(|_, value| !value.is_null());
        one_spelling(&mut values);
        Config { values, base: None, section: String::new(), source: Arc::new(Source { path: path.into(), origins }) }
    }

    /// The model's `model_type`, such as `qwen3_moe`; empty if the file has none.
    pub fn architecture(&self) -> &str {
        self.get("model_type").and_then(Value::as_str).unwrap_or_default()
    }

    /// The file, for messages.
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// Whether `key` is present and not null.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The value under `key` as the file has it, for readers of their own.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.get(key)
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).or_else(|| self.base.as_ref()?.get(key))
    }

    /// An error about `key` that names the file and the file's own spelling of the key.
    pub fn error(&self, key: &str, reason: impl Into<String>) -> LoadError {
        let name = format!("{}{key}", self.section);
        let name = match self.source.origins.get(&name) {
            Some(origin) => format!("{origin} ({name})"),
            None => name,
        };
        LoadError::config(name, reason).in_file(&self.source.path)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, LoadError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value) {
            Some(value) => Ok(Some(value)),
            None => Err(self.error(key, format!("is {}, expected {expected}", describe(value)))),
        }
    }

    fn required<T>(&self, key: &str, expected: &str, value: Option<T>) -> Result<T, LoadError> {
        value
            .ok_or_else(|| self.error(key, format!("is absent, expected {expected}; the file does not fit this model")))
    }

    /// A non-negative integer up to 2³² - 1, so that a product of two cannot overflow.
    ///
    /// # Errors
    /// As for all accessors: if the key is absent (unless the name says `opt` or `or`) or the value is anything else, such
    /// as negative, fractional, huge, or a string.
    pub fn usize(&self, key: &str) -> Result<usize, LoadError> {
        self.required(key, INTEGER, self.opt_usize(key)?)
    }

    /// An integer, or `default` if the key is absent.
    pub fn usize_or(&self, key: &str, default: usize) -> Result<usize, LoadError> {
        Ok(self.opt_usize(key)?.unwrap_or(default))
    }

    /// An integer, if the key is present.
    pub fn opt_usize(&self, key: &str) -> Result<Option<usize>, LoadError> {
        self.typed(key, INTEGER, as_usize)
    }

    /// An integer within `range`.
    pub fn bounded(&self, key: &str, range: RangeInclusive<usize>) -> Result<usize, LoadError> {
        let value = self.usize(key)?;
        if !range.contains(&value) {
            return Err(self.error(key, format!("is {value}, expected {} to {}", range.start(), range.end())));
        }
        Ok(value)
    }

    /// A list of integers.
    pub fn usizes(&self, key: &str) -> Result<Vec<usize>, LoadError> {
        self.required(key, "a list of integers", self.opt_usizes(key)?)
    }

    /// A list of integers, if the key is present.
    pub fn opt_usizes(&self, key: &str) -> Result<Option<Vec<usize>>, LoadError> {
        self.typed(key, "a list of integers from 0 to 4294967295", |value| list(value, as_usize))
    }

    /// Token ids: one integer or a list of them; empty if the key is absent.
    pub fn token_ids(&self, key: &str) -> Result<Vec<u32>, LoadError> {
        let id = |value: &Value| as_usize(value).and_then(|id| u32::try_from(id).ok());
        let ids = self.typed(key, "a token id or a list of them", |value| match value {
            Value::Array(_) => list(value, id),
            _ => id(value).map(|id| vec![id]),
        })?;
        Ok(ids.unwrap_or_default())
    }

    /// A number that an f32 can hold, which may be infinite.
    pub fn f32(&self, key: &str) -> Result<f32, LoadError> {
        self.required(key, NUMBER, self.opt_f32(key)?)
    }

    /// A number, or `default` if the key is absent.
    pub fn f32_or(&self, key: &str, default: f32) -> Result<f32, LoadError> {
        Ok(self.opt_f32(key)?.unwrap_or(default))
    }

    /// A number, if the key is present.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>, LoadError> {
        self.typed(key, NUMBER, as_f32)
    }

    /// A list of numbers, if the key is present.
    pub fn opt_f32s(&self, key: &str) -> Result<Option<Vec<f32>>, LoadError> {
        self.typed(key, "a list of numbers", |value| list(value, as_f32))
    }

    /// `true` or `false`, or `default` if the key is absent.
    pub fn bool_or(&self, key: &str, default: bool) -> Result<bool, LoadError> {
        Ok(self.opt_bool(key)?.unwrap_or(default))
    }

    /// `true` or `false`, if the key is present.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>, LoadError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// A string.
    pub fn str(&self, key: &str) -> Result<&str, LoadError> {
        self.required(key, "a string", self.opt_str(key)?)
    }

    /// A string, if the key is present.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>, LoadError> {
        self.typed(key, "a string", Value::as_str)
    }

    /// A list of strings, if the key is present.
    pub fn opt_strs(&self, key: &str) -> Result<Option<Vec<&str>>, LoadError> {
        self.typed(key, "a list of strings", |value| value.as_array()?.iter().map(Value::as_str).collect())
    }

    /// The object under `key`, if the key is present.
    pub fn section(&self, key: &str) -> Result<Option<Config>, LoadError> {
        let values = self.typed(key, "an object", Value::as_object)?;
        Ok(values.map(|values| {
            let mut values = values.clone();
            values.retain(|_, value| !value.is_null());
            Config { values, base: None, section: format!("{}{key}.", self.section), source: self.source.clone() }
        }))
    }

    /// For each object of the list under `key`, this section with the object's keys in place of its own: settings of layers
    /// that differ.
    pub fn overlays(&self, key: &str) -> Result<Option<Vec<Config>>, LoadError> {
        let objects = |value| list(value, |value| value.as_object().cloned());
        let Some(objects) = self.typed(key, "a list of objects", objects)? else { return Ok(None) };
        let base = Arc::new(self.values.clone());
        let overlay = |mut values: Map<String, Value>| {
            values.retain(|_, value| !value.is_null());
            Config { values, base: Some(base.clone()), section: self.section.clone(), source: self.source.clone() }
        };
        Ok(Some(objects.into_iter().map(overlay).collect()))
    }

    /// Keys of this section, in the order of the file; of an overlay its own.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }
}

const INTEGER: &str = "an integer from 0 to 4294967295";
const NUMBER: &str = "a number";

fn as_usize(value: &Value) -> Option<usize> {
    let integer = value.as_u64().or_else(|| {
        // Some tools write 4096.0.
        let float = value.as_f64().filter(|float| float.fract() == 0.0)?;
        (0.0..=MAX_INTEGER as f64).contains(&float).then_some(float as u64)
    })?;
    if integer > MAX_INTEGER {
        return None;
    }
    usize::try_from(integer).ok()
}

fn as_f32(value: &Value) -> Option<f32> {
    if let Some(number) = value.as_f64() {
        let number = number as f32;
        return number.is_finite().then_some(number);
    }
    match value.as_object()?.get("__float__")?.as_str()? {
        "Infinity" => Some(f32::INFINITY),
        "-Infinity" => Some(f32::NEG_INFINITY),
        _ => None,
    }
}

fn list<T>(value: &Value, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(read).collect()
}

/// A value as a message shows it.
fn describe(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(_) => "an object".into(),
        other => short(&other.to_string()),
    }
}

/// Fills in the spellings that are missing.
fn one_spelling(values: &mut Map<String, Value>) {
    for (left, right) in ALIASES {
        for (from, to) in [(left, right), (right, left)] {
            if let (Some(value), false) = (values.get(*from).cloned(), values.contains_key(*to)) {
                values.insert((*to).to_string(), value);
            }
        }
    }
    // A value of a wrong type is left as it is, for the accessor to complain about.
    let mut rope = match values.get("rope_parameters").or_else(|| values.get("rope_scaling")) {
        Some(Value::Object(rope)) => rope.clone(),
        None => Map::new(),
        Some(_) => return,
    };
    // Models with several kinds of layers have one object for each kind.
    let nested = rope.values().any(|value| value.as_object().is_some_and(|kind| !kind.contains_key("__float__")));
    if nested {
        rope.values_mut().filter_map(Value::as_object_mut).for_each(name_rope_type);
    } else {
        for key in ROPE_KEYS {
            match (rope.get(*key).cloned(), values.get(*key).cloned()) {
                (Some(value), None) => drop(values.insert((*key).to_string(), value)),
                (None, Some(value)) => drop(rope.insert((*key).to_string(), value)),
                _ => {}
            }
        }
        name_rope_type(&mut rope);
    }
    values.insert("rope_parameters".into(), Value::Object(rope));
}

fn name_rope_type(rope: &mut Map<String, Value>) {
    rope.retain(|_, value| !value.is_null());
    if !rope.contains_key("rope_type") {
        let kind = rope.get("type").cloned().unwrap_or_else(|| json!("default"));
        rope.insert("rope_type".into(), kind);
    }
}

/// `text` with the numbers that Python writes and JSON does not have replaced, or `None` if there are none.
fn quote_bare_floats(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut in_string = false;
    while let Some(next) = rest.chars().next() {
        let bare = ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| !in_string && rest.starts_with(word));
        if let Some(word) = bare {
            out.push_str(&format!("{{\"__float__\":\"{word}\"}}"));
            rest = &rest[word.len()..];
            continue;
        }
        // An escaped quote does not end a string.
        let width = if in_string && next == '\\' {
            1 + rest[1..].chars().next().map_or(0, char::len_utf8)
        } else {
            in_string ^= next == '"';
            next.len_utf8()
        };
        out.push_str(&rest[..width]);
        rest = &rest[width..];
    }
    (out.len() != text.len()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::from_json(Path::new("config.json"), text).unwrap()
    }

    #[test]
    fn integers() {
        let config =
            config(r#"{"a":3,"b":4.0,"neg":-1,"part":1.5,"huge":4294967296,"huge_float":1e30,"text":"3","none":null}"#);
        assert_eq!(config.usize("a").unwrap(), 3);
        assert_eq!(config.usize("b").unwrap(), 4);
        assert_eq!(config.usize_or("none", 7).unwrap(), 7);
        assert!(!config.has("none"));
        for (key, found) in
            [("neg", "-1"), ("part", "1.5"), ("huge", "4294967296"), ("huge_float", "1e30"), ("text", "\"3\"")]
        {
            let error = config.usize_or(key, 1).unwrap_err().to_string();
            let expected = format!("config.json: key `{key}`: is {found}, expected an integer from 0 to 4294967295");
            assert_eq!(error.replace("1e+30", "1e30"), expected);
        }
        let absent = config.usize("none").unwrap_err().to_string();
        assert!(absent.starts_with("config.json: key `none`: is absent, expected an integer"), "{absent}");
        assert!(config.bounded("a", 4..=9).unwrap_err().to_string().contains("is 3, expected 4 to 9"));
        assert_eq!(config.bounded("a", 1..=3).unwrap(), 3);
    }

    #[test]
    fn floats_bools_and_lists() {
        let config = config(
            r#"{"x":1e-5,"inf":{"__float__":"Infinity"},"too_large":1e300,"nan":{"__float__":"NaN"},"ids":[1,2],"id":5,
                "kinds":["a","b"],"mixed":[1,-1],"yes":true,"limits":[0.0,{"__float__":"-Infinity"}]}"#,
        );
        assert_eq!(config.f32("x").unwrap(), 1e-5);
        assert_eq!(config.f32("inf").unwrap(), f32::INFINITY);
        assert_eq!(config.opt_f32s("limits").unwrap().unwrap(), [0.0, f32::NEG_INFINITY]);
        assert!(config.f32("too_large").is_err() && config.f32("nan").is_err() && config.f32("yes").is_err());
        assert_eq!(config.token_ids("ids").unwrap(), [1, 2]);
        assert_eq!(config.token_ids("id").unwrap(), [5]);
        assert!(config.token_ids("absent").unwrap().is_empty());
        assert_eq!(config.usizes("ids").unwrap(), [1, 2]);
        assert!(config.usizes("mixed").is_err() && config.usizes("id").is_err() && config.usizes("absent").is_err());
        assert_eq!(config.opt_strs("kinds").unwrap().unwrap(), ["a", "b"]);
        assert!(config.bool_or("yes", false).unwrap() && config.bool_or("x", false).is_err());
    }

    #[test]
    fn numbers_that_json_lacks() {
        let config = config(r#"{"limit":[0.0, Infinity],"low":-Infinity,"text":"Infinity \" NaN","key Infinity":1}"#);
        assert_eq!(config.opt_f32s("limit").unwrap().unwrap(), [0.0, f32::INFINITY]);
        assert_eq!(config.f32("low").unwrap(), f32::NEG_INFINITY);
        assert_eq!(config.str("text").unwrap(), "Infinity \" NaN");
        assert_eq!(config.usize("key Infinity").unwrap(), 1);
        for broken in ["", "[]", "{", "Infinit", "{\"a\":Infinity", "\"\\", "{\"a\\é"] {
            assert!(Config::from_json(Path::new("config.json"), broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn old_and_new_rope_keys_read_the_same() {
        let old = config(r#"{"rope_theta":5e5,"rope_scaling":{"type":"yarn","factor":4.0}}"#);
        let new = config(r#"{"rope_parameters":{"rope_theta":5e5,"rope_type":"yarn","factor":4.0}}"#);
        for config in [old, new] {
            let rope = config.section("rope_parameters").unwrap().unwrap();
            assert_eq!(rope.f32("rope_theta").unwrap(), 5e5);
            assert_eq!(config.f32("rope_theta").unwrap(), 5e5);
            assert_eq!(rope.str("rope_type").unwrap(), "yarn");
            assert_eq!(rope.f32("factor").unwrap(), 4.0);
            let error = rope.usize("beta_fast").unwrap_err().to_string();
            assert!(error.contains("`rope_parameters.beta_fast`"), "{error}");
        }
        let plain = config(r#"{"rope_theta":1e4,"rope_scaling":null,"partial_rotary_factor":0.25}"#);
        let rope = plain.section("rope_parameters").unwrap().unwrap();
        assert_eq!((rope.str("rope_type").unwrap(), rope.f32("partial_rotary_factor").unwrap()), ("default", 0.25));
        let kinds = config(
            r#"{"rope_parameters":{"full_attention":{"rope_theta":1.0},"sliding_attention":{"type":"linear"}}}"#,
        );
        let kinds = kinds.section("rope_parameters").unwrap().unwrap();
        assert_eq!(kinds.section("sliding_attention").unwrap().unwrap().str("rope_type").unwrap(), "linear");
        assert_eq!(kinds.section("full_attention").unwrap().unwrap().str("rope_type").unwrap(), "default");
        assert!(config(r#"{"rope_scaling":3}"#).section("rope_scaling").is_err());
    }

    #[test]
    fn overlays_hold_before_what_is_around_them() {
        let text = r#"{"llm_config":{"a":1,"b":2,"attention_head_dim":64},"list":[{"a":3},{"b":null}],"no":[1]}"#;
        let config = config(text);
        assert_eq!(config.usize("head_dim").unwrap(), 64);
        let overlays = config.overlays("list").unwrap().unwrap();
        let numbers = overlays.iter().map(|c| (c.usize("a").unwrap(), c.usize("b").unwrap(), c.has("c")));
        assert_eq!(numbers.collect::<Vec<_>>(), [(3, 2, false), (1, 2, false)]);
        assert!(config.overlays("absent").unwrap().is_none());
        let error = config.overlays("no").unwrap_err().to_string();
        assert!(error.contains("key `no`: is a list of 1, expected a list of objects"), "{error}");
    }

    #[test]
    fn aliases_and_text_config() {
        let config = config(
            r#"{"model_type":"qwen3_5","torch_dtype":"bfloat16","hidden_size":null,
                "text_config":{"model_type":"qwen3_5_text","hidden_size":64,"num_local_experts":8,"vocab_size":null},
                "vocab_size":256,"vision_config":{"depth":2}}"#,
        );
        assert_eq!(config.architecture(), "qwen3_5");
        assert_eq!(config.str("dtype").unwrap(), "bfloat16");
        assert_eq!(config.usize("num_experts").unwrap(), 8);
        assert_eq!(config.usize("hidden_size").unwrap(), 64);
        assert_eq!(config.usize("vocab_size").unwrap(), 256);
        assert_eq!(config.section("vision_config").unwrap().unwrap().usize("depth").unwrap(), 2);
    }
}
