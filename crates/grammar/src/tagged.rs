//! Objects whose properties stand between tags, as some models write the arguments of a call.

use std::collections::HashSet;

use llguidance::regex_to_lark;
use regex_syntax::hir::{Hir, HirKind, Look};
use serde_json::{Map, Value, json};

use crate::error::GrammarError;
use crate::formats;
use crate::grammar::{Grammar, quoted};
use crate::schema::{MAX_DEPTH, MAX_VALUES, Schema, error, within};

/// What stands around the name and the value of each property of [`Grammar::tagged_object`].
#[derive(Clone, Copy, Debug)]
pub struct Tags {
    /// Before the name.
    pub before_name: &'static str,
    /// Between the name and the value.
    pub after_name: &'static str,
    /// After the value.
    pub after_value: &'static str,
}

/// Keywords of the outermost object.
const KNOWN: [&str; 4] = ["type", "properties", "required", "additionalProperties"];

/// Any text.
const ANY: &str = "/(?s:.*)/";

/// See [`Grammar::tagged_object`].
pub(crate) fn object(schema: &Value, tags: Tags) -> Result<Grammar, GrammarError> {
    let schema = Schema::new(schema)?;
    let mut reader = Reader { schema: &schema, tags, left: MAX_VALUES, values: 0 };
    if tags.after_name.is_empty() || tags.after_value.is_empty() {
        return Err(GrammarError::Grammar { reason: "a tag after a name or a value is empty".into() });
    }
    let (keywords, place) = reader.outermost()?;
    let none = Map::new();
    let properties = keywords.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let names = keywords.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let additional = keywords.get("additionalProperties").unwrap_or(&Value::Bool(true));
    let mut all: Vec<(&str, &Value)> = properties.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let mut required = HashSet::new();
    for name in names {
        if required.insert(name) && !properties.contains_key(name) {
            all.push((name, additional));
        }
    }

    let values = all.iter().map(|(_, value)| *value).chain([additional]);
    reader.values = schema.values_in(values);
    if reader.values.max(all.len()) > MAX_VALUES {
        let reason = format!(
            "more than {MAX_VALUES} subschemas and values, where each property counts all that it may refer to"
        );
        return Err(error(place, "properties", reason));
    }
    if all.is_empty() {
        let place = format!("{place}/additionalProperties");
        let Some(value) = reader.value(additional, &place)? else { return Ok(Grammar::literal("")) };
        let name = format!("{} /[A-Za-z0-9_.-]{{1,64}}/ {}", quoted(tags.before_name), quoted(tags.after_name));
        return Ok(Grammar::concat([Grammar::lazy(name), value]).repeat(0, None));
    }
    let mut members = vec![];
    for (name, value) in all {
        let place = within(place, "properties", name);
        if !ends_with_first(name, tags.after_name) {
            return Err(error(&place, "properties", "the name holds the tag that comes after it"));
        }
        let is_required = required.contains(name);
        match reader.value(value, &place)? {
            Some(value) => {
                let head = Grammar::literal(&format!("{}{name}{}", tags.before_name, tags.after_name));
                members.push((Grammar::concat([head, value]), is_required));
            }
            None if is_required => return Err(error(&place, "required", "no value of it is allowed")),
            None => {}
        }
    }
    Ok(Grammar::once_each(members))
}

/// Whether the first occurrence of `tag` in a text that it follows is this one.
fn ends_with_first(text: &str, tag: &str) -> bool {
    format!("{text}{tag}").find(tag) == Some(text.len())
}

/// Which strings a schema accepts.
enum Strings {
    None,
    All,
    Literals(Vec<String>),
    /// All of so many characters.
    Lengths(u64, Option<u64>),
    /// Those of an expression for terminals of Lark.
    Some(String),
}

impl Strings {
    fn expression(self) -> String {
        match self {
            Strings::None => format!("~{ANY}"),
            Strings::All => ANY.to_owned(),
            Strings::Literals(all) => {
                let all: Vec<String> = all.iter().map(|text| quoted(text)).collect();
                format!("( {} )", all.join(" | "))
            }
            Strings::Lengths(min, max) => {
                let max = max.map_or_else(String::new, |max| max.to_string());
                format!("/(?s:.{{{min},{max}}})/")
            }
            Strings::Some(expression) => expression,
        }
    }

    fn and(self, other: Strings) -> Strings {
        match (self, other) {
            (Strings::None, _) | (_, Strings::None) => Strings::None,
            (Strings::All, other) | (other, Strings::All) => other,
            (Strings::Lengths(min, max), Strings::Lengths(other_min, other_max)) => {
                let (min, max) = (min.max(other_min), max.into_iter().chain(other_max).min());
                if max.is_some_and(|max| min > max) { Strings::None } else { Strings::Lengths(min, max) }
            }
            (one, other) => Strings::Some(format!("( {} & {} )", one.expression(), other.expression())),
        }
    }

    fn or(self, other: Strings) -> Strings {
        match (self, other) {
            (Strings::All, _) | (_, Strings::All) => Strings::All,
            (Strings::None, other) | (other, Strings::None) => other,
            (Strings::Literals(mut all), Strings::Literals(more)) => {
                all.extend(more);
                Strings::Literals(all)
            }
            (one, other) => Strings::Some(format!("( {} | {} )", one.expression(), other.expression())),
        }
    }
}

struct Reader<'a> {
    schema: &'a Schema,
    tags: Tags,
    /// Schemas and constants that may still be looked at.
    left: usize,
    /// A bound for those of all properties together.
    values: usize,
}

impl<'a> Reader<'a> {
    /// The keywords of the object, and where it is.
    fn outermost(&self) -> Result<(Map<String, Value>, &'a str), GrammarError> {
        let (mut schema, mut place) = self.schema.top();
        let keywords = loop {
            match schema {
                Value::Bool(true) => return Ok((Map::new(), place)),
                Value::Object(keywords) => match keywords.get("$ref").filter(|_| keywords.len() == 1) {
                    Some(target) => {
                        let missing = || error(place, "$ref", "there is nothing");
                        (schema, place) = self.schema.target(target).ok_or_else(missing)?;
                    }
                    None => break keywords,
                },
                _ => return Err(error(place, "type", "the outermost value must be an object")),
            }
        };
        if let Some(key) = keywords.keys().find(|key| !KNOWN.contains(&key.as_str())) {
            return Err(error(place, key, "it is not supported in the outermost object between tags"));
        }
        if types(keywords).is_some_and(|types| !types.contains(&"object")) {
            return Err(error(place, "type", "the outermost value must be an object"));
        }
        Ok((keywords.clone(), place))
    }

    /// A value and the tag after it; `None` if no value is allowed.
    fn value(&mut self, schema: &Value, place: &str) -> Result<Option<Grammar>, GrammarError> {
        let after = quoted(self.tags.after_value);
        let search = self.schema.search();
        let may_be = |other: Value| !search.are_disjoint(schema, &other);
        // Types of JSON, and how none but their texts begin.
        let mut types: Vec<(&str, &str)> = [("array", r"\["), ("number", "[0-9-]"), ("object", r"\{")].into();
        types.retain(|(name, _)| may_be(json!({"type": name})));
        let mut words = vec![Value::Null, true.into(), false.into()];
        words.retain(|word| may_be(json!({"const": word})));
        let is_string = may_be(json!({"type": "string"}));

        let strings = self.strings(schema, place, 0)?;
        // Strings are never written as JSON: nothing would tell their quotes from ones that belong to the text.
        let names: Vec<&str> = types.iter().map(|(name, _)| *name).collect();
        let part = if is_string { json!({"allOf": [schema, {"type": names}]}) } else { schema.clone() };
        let mut options = vec![];
        let text = match strings {
            Strings::All => return Ok(Some(Grammar::text_until(self.tags.after_value))),
            Strings::None => None,
            Strings::Literals(_) => Some(format!("{} {after}", strings.expression())),
            // The text is complete at the first tag that follows enough characters, which has to be the first of all.
            Strings::Lengths(min, _) => {
                let early = format!(" & ~( /(?s:.{{0,{}}})/ {after} {ANY} )", min.saturating_sub(1));
                Some(format!("( {} {after} ){}", strings.expression(), if min > 0 { &early } else { "" }))
            }
            Strings::Some(part) => Some(format!("( {part} {after} ) & ~( {ANY} {after} /(?s:.)+/ )")),
        };
        match text {
            // The lexer reads JSON and text side by side and never goes back: the first character has to decide.
            Some(mut text) => {
                for (_, begin) in &types {
                    text = format!("( {text} ) & ~( /{begin}/ {ANY} )");
                }
                for word in &words {
                    text = format!("( {text} ) | \"{word}\" {after}");
                }
                options.push(Grammar::lazy(text));
            }
            None if is_string && !words.is_empty() => {
                let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                options.push(Grammar::lazy(format!("( {} ) {after}", words.join(" | "))));
            }
            None => {}
        }
        if !types.is_empty() || (!is_string && !words.is_empty()) {
            let json = Grammar::of_schema(self.schema.part(part, self.values));
            options.push(Grammar::concat([json, Grammar::literal(self.tags.after_value)]));
        }
        Ok(if options.is_empty() { None } else { Some(Grammar::choice(options)) })
    }

    fn strings(&mut self, schema: &Value, place: &str, depth: usize) -> Result<Strings, GrammarError> {
        self.count(place)?;
        if depth > MAX_DEPTH {
            return Err(error(place, "$ref", format!("it is more than {MAX_DEPTH} schemas deep")));
        }
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            Value::Bool(false) => return Ok(Strings::None),
            _ => return Ok(Strings::All),
        };
        if types(keywords).is_some_and(|types| !types.contains(&"string")) {
            return Ok(Strings::None);
        }
        let mut all = Strings::All;
        for (key, value) in keywords {
            let list = value.as_array().map_or(&[][..], Vec::as_slice);
            let options = |of: &mut Self| -> Result<Vec<Strings>, GrammarError> {
                let options = list.iter().enumerate();
                options.map(|(at, option)| of.strings(option, &format!("{place}/{key}/{at}"), depth + 1)).collect()
            };
            all = all.and(match key.as_str() {
                "$ref" => {
                    let (target, place) = self.schema.target(value).ok_or_else(|| error(place, key, "unknown"))?;
                    self.strings(target, place, depth + 1)?
                }
                "allOf" => options(self)?.into_iter().fold(Strings::All, Strings::and),
                "anyOf" => options(self)?.into_iter().fold(Strings::None, Strings::or),
                "enum" => self.literals(list, place, key)?,
                "const" => self.literals(std::slice::from_ref(value), place, key)?,
                "minLength" => Strings::Lengths(value.as_u64().unwrap_or_default(), None),
                "maxLength" => Strings::Lengths(0, value.as_u64()),
                "pattern" => Strings::Some(searched(value.as_str().unwrap_or_default()).ok_or_else(|| {
                    error(place, key, "between tags it is supported only with `^` at its beginning and `$` at its end")
                })?),
                "format" => {
                    let expression = value.as_str().and_then(formats::expression);
                    let expression = expression.ok_or_else(|| error(place, key, "it is not supported between tags"))?;
                    Strings::Some(format!("/{}/", regex_to_lark(&expression, "")))
                }
                _ => Strings::All,
            });
        }
        Ok(all)
    }

    /// The strings among constants.
    fn literals(&mut self, values: &[Value], place: &str, key: &str) -> Result<Strings, GrammarError> {
        let mut literals = vec![];
        for text in values.iter().filter_map(Value::as_str) {
            self.count(place)?;
            if !ends_with_first(text, self.tags.after_value) {
                return Err(error(place, key, "a text holds the tag that comes after it"));
            }
            literals.push(text.to_owned());
        }
        Ok(if literals.is_empty() { Strings::None } else { Strings::Literals(literals) })
    }

    fn count(&mut self, place: &str) -> Result<(), GrammarError> {
        let too_many = || error(place, "$ref", format!("more than {MAX_VALUES} subschemas and values"));
        self.left = self.left.checked_sub(1).ok_or_else(too_many)?;
        Ok(())
    }
}

/// The types that a schema names, or that its keywords are about; `None` if it may be any.
fn types(keywords: &Map<String, Value>) -> Option<Vec<&str>> {
    let has = |names: &[&str]| names.iter().any(|name| keywords.contains_key(*name));
    match keywords.get("type") {
        Some(Value::Array(names)) => Some(names.iter().filter_map(Value::as_str).collect()),
        Some(name) => Some(name.as_str().into_iter().collect()),
        None if has(&["properties", "additionalProperties", "patternProperties", "required"]) => Some(vec!["object"]),
        None if has(&["items", "prefixItems", "additionalItems"]) => Some(vec!["array"]),
        None => None,
    }
}

/// An expression for terminals of Lark for the texts that a pattern is found in; `None` if it looks around other than at
/// the ends of the text.
fn searched(pattern: &str) -> Option<String> {
    // In JSON schemas, as in JavaScript, `\d` and `\w` are of ASCII.
    let hir = regex_syntax::parse(&regex_to_lark(pattern, "dw")).ok()?;
    let text = whole(hir)?.to_string();
    Some(if text.is_empty() { quoted("") } else { format!("/{}/", regex_to_lark(&text, "")) })
}

/// An expression for the whole of a text that another is found in.
fn whole(hir: Hir) -> Option<Hir> {
    let mut parts = match hir.into_kind() {
        HirKind::Capture(group) => return whole(*group.sub),
        HirKind::Alternation(options) => {
            return Some(Hir::alternation(options.into_iter().map(whole).collect::<Option<_>>()?));
        }
        HirKind::Concat(parts) => parts,
        kind => vec![from_kind(kind)],
    };
    let is = |part: Option<&Hir>, look: Look| part.is_some_and(|part| *part.kind() == HirKind::Look(look));
    let any = || regex_syntax::parse("(?s:.*)").ok();
    if is(parts.first(), Look::Start) {
        parts.remove(0);
    } else {
        parts.insert(0, any()?);
    }
    if is(parts.last(), Look::End) {
        parts.pop();
    } else {
        parts.push(any()?);
    }
    let whole = Hir::concat(parts);
    whole.properties().look_set().is_empty().then_some(whole)
}

fn from_kind(kind: HirKind) -> Hir {
    match kind {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(class) => Hir::class(class),
        HirKind::Look(look) => Hir::look(look),
        HirKind::Repetition(repetition) => Hir::repetition(repetition),
        HirKind::Capture(capture) => Hir::capture(capture),
        HirKind::Concat(parts) => Hir::concat(parts),
        HirKind::Alternation(parts) => Hir::alternation(parts),
    }
}
