//! `tojson` as chat templates expect it: Python's `json.dumps`, which leaves non-ASCII text as it is and puts a space
//! after separators.

use minijinja::{Error, ErrorKind, State, Value, value::Kwargs, value::ValueKind};

use super::mark::is_mark;

const MAX_DEPTH: usize = 200;

struct Writer<'a, 'b, 'c> {
    state: &'a State<'b, 'c>,
    out: String,
    charged: usize,
    ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
}

/// The filter: `value|tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub(super) fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    ensure_ascii: Option<bool>,
    indent: Option<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let ascii = kwargs.get::<Option<bool>>("ensure_ascii")?.or(ensure_ascii).unwrap_or(false);
    let indent = match kwargs.get::<Option<Value>>("indent")?.or(indent) {
        Some(indent) if !indent.is_none() => Some(match indent.as_str() {
            Some(text) => text.chars().take(64).collect(),
            None => {
                let count = indent.as_i64().ok_or_else(|| invalid("tojson: indent is not a number"))?;
                " ".repeat(count.clamp(0, 64) as usize)
            }
        }),
        _ => None,
    };
    let separators = kwargs.get::<Option<Value>>("separators")?.filter(|separators| !separators.is_none());
    let (item_separator, key_separator) = match separators {
        Some(pair) => {
            let part = |index| {
                let part = pair.get_item_by_index(index)?;
                part.as_str().map(str::to_owned).ok_or_else(|| invalid("tojson: separators are two strings"))
            };
            (part(0)?, part(1)?)
        }
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let sort_keys = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let mut writer =
        Writer { state, out: String::new(), charged: 0, ascii, sort_keys, indent, item_separator, key_separator };
    writer.value(value, 0)?;
    Ok(writer.out)
}

fn invalid(detail: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail)
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        // A value can be small and its text immense, so both the visit and the text are paid for as they come.
        self.state.consume_fuel(1 + (self.out.len() - self.charged) as u64 / 16)?;
        self.charged = self.out.len();
        if depth > MAX_DEPTH {
            return Err(invalid("tojson: the value is nested too deep"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let mut any = false;
                for item in value.try_iter()?.checked() {
                    self.begin(if any { None } else { Some('[') }, depth + 1);
                    any = true;
                    self.value(&item?, depth + 1)?;
                }
                self.end(any, "[]", depth);
            }
            ValueKind::Map => {
                let mut keys = value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
                if self.sort_keys {
                    self.state.consume_fuel(keys.len() as u64 * 8)?;
                    keys.sort();
                }
                let any = !keys.is_empty();
                for (index, key) in keys.into_iter().enumerate() {
                    self.begin(if index == 0 { Some('{') } else { None }, depth + 1);
                    match key.kind() {
                        ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                        ValueKind::None => self.out.push_str("\"null\""),
                        ValueKind::Bool => self.out.push_str(if key.is_true() { "\"true\"" } else { "\"false\"" }),
                        ValueKind::Number => self.string(&number(&key)),
                        _ => return Err(invalid("tojson: keys are strings, numbers, booleans or none")),
                    }
                    self.out.push_str(&self.key_separator);
                    self.value(&value.get_item(&key)?, depth + 1)?;
                }
                self.end(any, "{}", depth);
            }
            other => {
                let detail = format!("tojson: {other} has no JSON form");
                return Err(Error::new(ErrorKind::InvalidOperation, detail));
            }
        }
        Ok(())
    }

    fn begin(&mut self, bracket: Option<char>, depth: usize) {
        match bracket {
            Some(bracket) => self.out.push(bracket),
            None => self.out.push_str(&self.item_separator),
        }
        self.new_line(depth);
    }

    fn end(&mut self, any: bool, brackets: &str, depth: usize) {
        if any {
            self.new_line(depth);
            self.out.push_str(&brackets[1..]);
        } else {
            self.out.push_str(brackets);
        }
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            (0..depth).for_each(|_| self.out.push_str(indent));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                '\0'..' ' => self.escape(c),
                ' '..='~' => self.out.push(c),
                _ if self.ascii && !is_mark(c) => self.escape(c),
                _ => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, c: char) {
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units) {
            self.out.push_str(&format!("\\u{unit:04x}"));
        }
    }
}

/// A number as Python prints it: the shortest digits that give it back, with an exponent below 1e-4 and from 1e16 on.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(float) = f64::try_from(value.clone()) else { return value.to_string() };
    if float.is_nan() {
        return "NaN".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{float:e}");
    let exponent: i32 = scientific.rsplit('e').next().and_then(|exponent| exponent.parse().ok()).unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return format!("{float:?}");
    }
    let digits = scientific.split('e').next().unwrap_or_default();
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
