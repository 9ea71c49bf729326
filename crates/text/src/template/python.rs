//! What templates take for granted because their authors ran Python.

use minijinja::{
    Environment, Error, ErrorKind, State, Value,
    value::{Tuple, ValueKind, from_args},
};
use minijinja_contrib::pycompat;

use super::tojson::tojson;

/// What the engine charges a step for.
const BYTES_PER_STEP: u64 = 64;

/// Adds filters, tests, functions and methods to an environment.
pub(super) fn install(environment: &mut Environment<'static>) {
    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", |reason: &Value| -> Result<Value, Error> {
        let refused = Refused(reason.to_string());
        Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(refused))
    });
    // In Python a string and a dictionary can be indexed and iterated over like a list.
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined)
    });
    environment.add_test("iterable", |value: &Value| match value.kind() {
        ValueKind::String | ValueKind::Undefined => true,
        ValueKind::None => false,
        _ => value.try_iter().is_ok(),
    });
    environment.set_unknown_method_callback(method);
}

/// The template's own refusal, carried through the engine's error.
#[derive(Debug)]
struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// The words of `raise_exception`, if that is where the error came from.
pub(super) fn refusal(error: &Error) -> Option<String> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(Refused(reason)) = error.downcast_ref() {
            return Some(reason.clone());
        }
        cause = error.source();
    }
    None
}

/// Methods beyond those of `minijinja-contrib`.
fn method(state: &mut State<'_, '_>, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        match method {
            // The engine charges for the widths of the filter `format`, not for those of the method.
            "format" => state.consume_fuel(sum_of_numbers(text) / BYTES_PER_STEP)?,
            "removeprefix" => {
                let (prefix,): (&str,) = from_args(args)?;
                return Ok(text.strip_prefix(prefix).unwrap_or(text).into());
            }
            "removesuffix" => {
                let (suffix,): (&str,) = from_args(args)?;
                return Ok(text.strip_suffix(suffix).unwrap_or(text).into());
            }
            "partition" | "rpartition" => {
                let (separator,): (&str,) = from_args(args)?;
                let parts = match method {
                    "partition" => text.split_once(separator),
                    _ => text.rsplit_once(separator),
                };
                let parts = match (parts, method) {
                    (Some((before, after)), _) => [before, separator, after],
                    (None, "partition") => [text, "", ""],
                    (None, _) => ["", "", text],
                };
                return Ok(Value::from(Tuple::from(parts.map(Value::from))));
            }
            "rsplit" => {
                let (separator, limit): (&str, Option<i64>) = from_args(args)?;
                if separator.is_empty() {
                    return Err(Error::new(ErrorKind::InvalidOperation, "rsplit: empty separator"));
                }
                let parts = usize::try_from(limit.unwrap_or(-1)).map_or(usize::MAX, |limit| limit.saturating_add(1));
                let mut parts: Vec<Value> = text.rsplitn(parts, separator).map(Value::from).collect();
                parts.reverse();
                return Ok(Value::from(parts));
            }
            _ => {}
        }
    }
    pycompat::unknown_method_callback(state, value, method, args)
}

/// What all numbers in a format string come to: no more characters of padding can it ask for.
fn sum_of_numbers(text: &str) -> u64 {
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    numbers.fold(0, |sum: u64, digits| sum.saturating_add(digits.parse().unwrap_or(u64::MAX)))
}

/// `{% generation %}` marks the model's own words for training. It changes nothing in the output, so it becomes an `if`
/// that always holds; white space control on the tags stays as it is.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        out.push_str(before);
        rest = tag;
        let control = if tag.starts_with(['-', '+']) { 1 } else { 0 };
        let name_start = tag.len() - tag[control..].trim_start().len();
        for (name, instead) in [("generation", "if true"), ("endgeneration", "endif")] {
            let Some(after) = tag[name_start..].strip_prefix(name) else { continue };
            let end = after.trim_start();
            if end.starts_with("%}") || end.starts_with("-%}") || end.starts_with("+%}") {
                out.push_str(&tag[..name_start]);
                out.push_str(instead);
                rest = after;
                break;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_become_conditions() {
        let source = "{%- generation -%}a{% endgeneration %}{%generation%}{% if generation %}{{ generation }}{%";
        let want = "{%- if true -%}a{% endif %}{%if true%}{% if generation %}{{ generation }}{%";
        assert_eq!(without_generation_tags(source), want);
    }
}
