//! JSON schemas, checked keyword by keyword before anything is compiled.
//!
//! What comes out has only keywords that `llguidance` enforces. References are resolved here: each target becomes a
//! definition of its own, so that one may point anywhere in the document.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use crate::disjoint::Search;
use crate::error::{GrammarError, shown};
use crate::formats;
use crate::grammar::check_regex;

/// Schemas within schemas, counted along references too until one comes again.
pub const MAX_DEPTH: usize = 128;

/// Subschemas and values of `enum` and `const` in a schema, all together.
pub const MAX_VALUES: usize = 20_000;

/// White space that may stand between the parts of a JSON text, as a regular expression. Without a bound a model could go
/// on with it forever.
pub(crate) const WHITESPACE: &str = r"[\x20\x0A\x0D\x09]{1,64}";

const SUPPORTED: &[&str] = &[
    "$defs",
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "definitions",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "required",
    "type",
];

/// Keywords that a schema can ask something with that cannot be enforced.
const UNSUPPORTED: &[&str] = &[
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

const FORMATS: &[&str] = &["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"];

/// Formats of the standard that cannot be enforced. Other names have no meaning that all agree on, so they only describe.
const UNSUPPORTED_FORMATS: &[&str] = &[
    "idn-email",
    "idn-hostname",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "uri-reference",
    "uri-template",
];

const TYPES: &[&str] = &["array", "boolean", "integer", "null", "number", "object", "string"];

/// The keywords of JSON schemas that are enforced.
///
/// With limits: options of `oneOf` have to exclude one another visibly (by type, `const`, `enum` or a required property);
/// `$ref` stays within the schema (`#` or `#/…`); `minProperties` and `maxProperties` need all `properties` to be required,
/// or both be about one; expressions of `patternProperties` have to exclude one another; `pattern` has no look-around and no
/// back-references; `format` is one of [`supported_formats`], and other names that are not of the standard are ignored.
/// `propertyNames`, `uniqueItems` and `unevaluated…` are accepted where they ask for nothing.
pub fn supported_keywords() -> &'static [&'static str] {
    SUPPORTED
}

/// The values of `format` that are enforced; `email`, `hostname` and `uri` without the limits of their lengths.
pub fn supported_formats() -> &'static [&'static str] {
    FORMATS
}

/// A schema that can be enforced.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    root: Value,
    definitions: Map<String, Value>,
    /// Where each definition is in the document.
    places: HashMap<String, String>,
    /// Subschemas and constants in it.
    values: usize,
}

impl Schema {
    pub(crate) fn new(schema: &Value) -> Result<Self, GrammarError> {
        let mut reader = Reader {
            document: schema,
            names: HashMap::new(),
            definitions: Map::new(),
            direct: vec![],
            exclusive: vec![],
            values: 0,
        };
        let root = reader.schema(schema, "", Some(""), 0)?;
        reader.check_progress()?;
        reader.check_exclusive()?;
        let places = reader.names.into_iter().map(|(place, name)| (name, place)).collect();
        Ok(Schema { root, definitions: reader.definitions, places, values: reader.values })
    }

    pub(crate) fn any_object() -> Self {
        Schema { root: json!({"type": "object"}), definitions: Map::new(), places: HashMap::new(), values: 1 }
    }

    /// The schema that stands alone.
    pub(crate) fn root(&self) -> Value {
        self.with_definitions(&self.root)
    }

    /// The keywords of the root, or of what it refers to.
    pub(crate) fn outermost(&self) -> &Value {
        resolve(&self.root, &self.definitions)
    }

    /// A part of this schema as one of its own. `values` bounds those of all parts together.
    pub(crate) fn part(&self, part: Value, values: usize) -> Schema {
        let definitions = if refers(&part) { self.definitions.clone() } else { Map::new() };
        Schema { root: part, definitions, places: HashMap::new(), values }
    }

    /// The root as it is, and where it is in the document.
    pub(crate) fn top(&self) -> (&Value, &str) {
        (&self.root, "")
    }

    /// What a schema refers to, and where that is in the document.
    pub(crate) fn target(&self, reference: &Value) -> Option<(&Value, &str)> {
        let name = reference.as_str()?.strip_prefix("#/$defs/")?;
        Some((self.definitions.get(name)?, self.places.get(name)?))
    }

    /// Looks whether parts exclude one another.
    pub(crate) fn search(&self) -> Search<'_> {
        Search::new(&self.definitions)
    }

    /// Bounds the values of all `parts` together once each stands alone.
    pub(crate) fn values_in<'a>(&self, parts: impl Iterator<Item = &'a Value>) -> usize {
        self.values * (1 + parts.filter(|part| refers(part)).count())
    }

    /// A part of this schema as one that stands alone, with the options it is to be compiled with.
    pub(crate) fn with_definitions(&self, part: &Value) -> Value {
        let mut whole = match part {
            Value::Object(part) => part.clone(),
            Value::Bool(true) => Map::new(),
            other => return other.clone(),
        };
        if !self.definitions.is_empty() && refers(part) {
            whole.insert("$defs".into(), Value::Object(self.definitions.clone()));
        }
        whole.insert("x-guidance".into(), json!({"whitespace_flexible": true, "whitespace_pattern": WHITESPACE}));
        Value::Object(whole)
    }
}

/// What a schema stands for that is nothing but a reference.
pub(crate) fn resolve<'a>(mut schema: &'a Value, definitions: &'a Map<String, Value>) -> &'a Value {
    for _ in 0..MAX_DEPTH {
        let Some(name) = reference(schema) else { break };
        schema = definitions.get(name).unwrap_or(schema);
    }
    schema
}

/// The definition that a schema names and has no other keywords beside.
fn reference(schema: &Value) -> Option<&str> {
    let schema = schema.as_object().filter(|schema| schema.len() == 1)?;
    schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}

fn refers(schema: &Value) -> bool {
    match schema {
        Value::Object(schema) => schema.contains_key("$ref") || schema.values().any(refers),
        Value::Array(list) => list.iter().any(refers),
        _ => false,
    }
}

/// Reads a document.
struct Reader<'a> {
    document: &'a Value,
    /// Names of definitions by where they are in the document.
    names: HashMap<String, String>,
    definitions: Map<String, Value>,
    /// References that are followed without any text between: where from, where to, and the place that says so.
    direct: Vec<[String; 3]>,
    /// Options of which at most one may match, and where they are: looked at once all definitions are there.
    exclusive: Vec<(String, Vec<Value>)>,
    values: usize,
}

pub(crate) fn error(place: &str, keyword: &str, reason: impl Into<String>) -> GrammarError {
    GrammarError::Schema { place: shown(place, 200), keyword: shown(keyword, 100), reason: reason.into() }
}

/// A place within another. Names are escaped as JSON pointers have them.
pub(crate) fn within(place: &str, keyword: &str, key: &str) -> String {
    format!("{place}/{keyword}/{}", key.replace('~', "~0").replace('/', "~1"))
}

impl<'a> Reader<'a> {
    /// A schema at `place`. `owner` is the place that it must hold for itself, if it adds no text around it.
    fn schema(
        &mut self,
        schema: &'a Value,
        place: &str,
        owner: Option<&str>,
        depth: usize,
    ) -> Result<Value, GrammarError> {
        if depth > MAX_DEPTH {
            return Err(error(place, "$ref", format!("it is more than {MAX_DEPTH} schemas deep")));
        }
        self.count(place, "properties")?;
        let keywords = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(keywords) => keywords,
            _ => return Err(error(place, "type", "a schema must be an object or a boolean")),
        };
        let mut out = Map::new();
        // What has to hold beside the keywords.
        let mut more = vec![];
        for (key, value) in keywords {
            let wrong = |expected: &str| {
                error(place, key, format!("found {}, expected {expected}", shown(&value.to_string(), 60)))
            };
            let found = match key.as_str() {
                "$ref" => {
                    let target = value.as_str().ok_or_else(|| wrong("a string"))?;
                    self.reference(target, place, owner, depth)?
                }
                "allOf" | "anyOf" | "oneOf" => {
                    let list =
                        value.as_array().filter(|list| !list.is_empty()).ok_or_else(|| wrong("a list of schemas"))?;
                    let options = self.list(list, place, key, owner, depth)?;
                    if key == "oneOf" {
                        more.push(json!({"anyOf": options}));
                        self.exclusive.push((place.to_owned(), options));
                        continue;
                    }
                    Value::Array(options)
                }
                "properties" | "patternProperties" => {
                    let map = value.as_object().ok_or_else(|| wrong("an object of schemas"))?;
                    let mut schemas = Map::new();
                    for (name, schema) in map {
                        if key == "patternProperties" {
                            check_regex(name)
                                .map_err(|reason| error(place, key, format!("`{}`: {reason}", shown(name, 60))))?;
                        }
                        let schema = self.schema(schema, &within(place, key, name), None, depth + 1)?;
                        schemas.insert(name.clone(), schema);
                    }
                    Value::Object(schemas)
                }
                "prefixItems" | "items" if value.is_array() => {
                    let schemas = value.as_array().map_or(&[][..], Vec::as_slice);
                    Value::Array(self.list(schemas, place, key, None, depth)?)
                }
                "items" | "additionalItems" | "additionalProperties" => {
                    self.schema(value, &format!("{place}/{key}"), None, depth + 1)?
                }
                "type" => {
                    let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                    let is_known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
                    if list.is_empty() || !list.iter().all(is_known) {
                        return Err(wrong(&format!("one or more of {}", TYPES.join(", "))));
                    }
                    value.clone()
                }
                "const" => {
                    self.constant(value, place, key, depth)?;
                    value.clone()
                }
                "enum" => {
                    let list =
                        value.as_array().filter(|list| !list.is_empty()).ok_or_else(|| wrong("a list of values"))?;
                    list.iter().try_for_each(|value| self.constant(value, place, key, depth))?;
                    value.clone()
                }
                "required" => {
                    let list = value.as_array().filter(|list| list.iter().all(Value::is_string));
                    Value::Array(list.ok_or_else(|| wrong("a list of names"))?.clone())
                }
                "minimum" | "maximum" => value.is_number().then(|| value.clone()).ok_or_else(|| wrong("a number"))?,
                "exclusiveMinimum" | "exclusiveMaximum" => {
                    let is_fine = value.is_number() || value.is_boolean();
                    is_fine.then(|| value.clone()).ok_or_else(|| wrong("a number"))?
                }
                "multipleOf" => {
                    let is_fine = value.as_f64().is_some_and(|step| step > 0.0);
                    is_fine.then(|| value.clone()).ok_or_else(|| wrong("a number above 0"))?
                }
                "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
                    let whole = value.as_u64().or_else(|| {
                        value.as_f64().filter(|x| x.fract() == 0.0 && (0.0..1e9).contains(x)).map(|x| x as u64)
                    });
                    let whole = whole
                        .filter(|&count| count < 1_000_000_000)
                        .ok_or_else(|| wrong("a whole number below 10^9"))?;
                    self.check_count(key, whole, keywords, place)?;
                    whole.into()
                }
                "pattern" => {
                    let expression = value.as_str().ok_or_else(|| wrong("a string"))?;
                    check_regex(expression)
                        .map_err(|reason| error(place, key, format!("`{}`: {reason}", shown(expression, 60))))?;
                    value.clone()
                }
                "format" => {
                    let name = value.as_str().ok_or_else(|| wrong("a string"))?;
                    if UNSUPPORTED_FORMATS.contains(&name) {
                        return Err(error(
                            place,
                            key,
                            format!("`{name}` is not supported; supported: {}", FORMATS.join(", ")),
                        ));
                    }
                    if let Some(pattern) = formats::exact(name) {
                        more.push(json!({"pattern": pattern}));
                        continue;
                    }
                    if !FORMATS.contains(&name) {
                        continue;
                    }
                    value.clone()
                }
                key if UNSUPPORTED.contains(&key) && !asks_for_nothing(key, value) => {
                    return Err(error(place, key, "it is not supported"));
                }
                _ => continue,
            };
            out.insert(key.clone(), found);
        }
        if !more.is_empty() {
            if let Some(Value::Array(all)) = out.get_mut("allOf") {
                more.splice(0..0, std::mem::take(all));
            }
            out.insert("allOf".into(), more.into());
        }
        Ok(Value::Object(out))
    }

    fn list(
        &mut self,
        list: &'a [Value],
        place: &str,
        key: &str,
        owner: Option<&str>,
        depth: usize,
    ) -> Result<Vec<Value>, GrammarError> {
        let schemas = list.iter().enumerate();
        schemas
            .map(|(index, schema)| self.schema(schema, &format!("{place}/{key}/{index}"), owner, depth + 1))
            .collect()
    }

    /// A reference to the definition that the target becomes.
    fn reference(
        &mut self,
        target: &str,
        place: &str,
        owner: Option<&str>,
        depth: usize,
    ) -> Result<Value, GrammarError> {
        let id = self.document.get("$id").and_then(Value::as_str).unwrap_or_default();
        let local = target.strip_prefix(id).unwrap_or(target);
        let pointer = local.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let pointer = pointer.ok_or_else(|| {
            error(
                place,
                "$ref",
                format!("found `{}`, expected `#` or `#/…`: a place within the schema", shown(target, 60)),
            )
        })?;
        let pointer = percent_decoded(pointer);
        let missing = || error(place, "$ref", format!("there is nothing at `{}`", shown(target, 60)));
        let schema = self.document.pointer(&pointer).ok_or_else(missing)?;
        if let Some(owner) = owner {
            self.direct.push([owner.to_owned(), pointer.clone(), place.to_owned()]);
        }
        let name = match self.names.get(&pointer) {
            Some(name) => name.clone(),
            None => {
                let name = format!("d{}", self.names.len());
                self.names.insert(pointer.clone(), name.clone());
                let definition = self.schema(schema, &pointer, Some(&pointer), depth + 1)?;
                self.definitions.insert(name.clone(), definition);
                name
            }
        };
        Ok(Value::from(format!("#/$defs/{name}")))
    }

    /// Fails if some references only ever lead back to themselves.
    fn check_progress(&self) -> Result<(), GrammarError> {
        // Whatever has no way on is taken away, until only circles are left.
        let mut left: Vec<&[String; 3]> = self.direct.iter().collect();
        loop {
            let before = left.len();
            let starts: HashSet<&String> = left.iter().map(|edge| &edge[0]).collect();
            left.retain(|edge| starts.contains(&edge[1]));
            if left.len() == before {
                break;
            }
        }
        match left.first() {
            Some(edge) => Err(error(&edge[2], "$ref", "it leads back to itself with nothing in between")),
            None => Ok(()),
        }
    }

    fn check_exclusive(&self) -> Result<(), GrammarError> {
        let search = Search::new(&self.definitions);
        for (place, options) in &self.exclusive {
            for (index, option) in options.iter().enumerate() {
                if let Some(other) = options[..index].iter().position(|other| !search.are_disjoint(option, other)) {
                    let reason = format!(
                        "options {other} and {index} may both match; only those that exclude one another by type, \
                         `const`, `enum` or a required property are supported: use `anyOf`"
                    );
                    return Err(error(place, "oneOf", reason));
                }
            }
        }
        Ok(())
    }

    fn check_count(
        &self,
        key: &str,
        count: u64,
        keywords: &Map<String, Value>,
        place: &str,
    ) -> Result<(), GrammarError> {
        if !matches!(key, "minProperties" | "maxProperties") {
            return Ok(());
        }
        let required: Vec<&Value> = keywords.get("required").and_then(Value::as_array).into_iter().flatten().collect();
        let mut names = keywords.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        let all_required = names.all(|name| required.iter().any(|required| *required == name));
        let is_closed = keywords.get("additionalProperties") == Some(&Value::Bool(false));
        let is_single = is_closed && !keywords.contains_key("patternProperties") && count == 1;
        // Nothing is asked for.
        if all_required || is_single || (key == "minProperties" && count <= required.len() as u64) {
            return Ok(());
        }
        Err(error(
            place,
            key,
            "it is supported only if all `properties` are required, or as 1 where there are no others",
        ))
    }

    /// Counts the values of a constant.
    fn constant(&mut self, value: &Value, place: &str, key: &str, depth: usize) -> Result<(), GrammarError> {
        if depth > MAX_DEPTH {
            return Err(error(place, key, format!("it is more than {MAX_DEPTH} values deep")));
        }
        self.count(place, key)?;
        match value {
            Value::Array(list) => list.iter().try_for_each(|value| self.constant(value, place, key, depth + 1)),
            Value::Object(map) => map.values().try_for_each(|value| self.constant(value, place, key, depth + 1)),
            _ => Ok(()),
        }
    }

    fn count(&mut self, place: &str, key: &str) -> Result<(), GrammarError> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(error(place, key, format!("more than {MAX_VALUES} subschemas and values")));
        }
        Ok(())
    }
}

/// Whether a keyword that is not supported has a value that changes nothing.
fn asks_for_nothing(key: &str, value: &Value) -> bool {
    match key {
        "uniqueItems" => *value == Value::Bool(false),
        "unevaluatedItems" | "unevaluatedProperties" => *value == Value::Bool(true),
        // Names are strings anyway.
        "propertyNames" => *value == Value::Bool(true) || *value == json!({}) || *value == json!({"type": "string"}),
        _ => false,
    }
}

/// A JSON pointer in a reference is part of an address, where `%25` is a percent sign.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| byte == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
