//! Whether two schemas visibly exclude one another.

use std::cell::Cell;

use serde_json::{Map, Value};

use crate::schema::resolve;

/// How far into properties and options to look.
const MAX_DEPTH: usize = 6;

/// Comparisons in all; what is not decided by then may match both.
const MAX_COMPARISONS: usize = 500_000;

/// Looks at the options of one schema.
pub(crate) struct Search<'a> {
    definitions: &'a Map<String, Value>,
    /// Comparisons left.
    left: Cell<usize>,
}

impl<'a> Search<'a> {
    pub(crate) fn new(definitions: &'a Map<String, Value>) -> Self {
        Search { definitions, left: Cell::new(MAX_COMPARISONS) }
    }

    /// True only if no value fits both; they have been checked.
    pub(crate) fn are_disjoint(&self, a: &Value, b: &Value) -> bool {
        self.disjoint(a, b, MAX_DEPTH)
    }

    fn disjoint(&self, a: &Value, b: &Value, depth: usize) -> bool {
        let (a, b) = (resolve(a, self.definitions), resolve(b, self.definitions));
        if *a == Value::Bool(false) || *b == Value::Bool(false) {
            return true;
        }
        depth > 0 && self.spend(1) && (self.excludes(a, b, depth) || self.excludes(b, a, depth))
    }

    /// Whether so many comparisons are left.
    fn spend(&self, comparisons: usize) -> bool {
        self.left.set(self.left.get().saturating_sub(comparisons));
        self.left.get() > 0
    }

    /// Whether something in `a` excludes all of `b`.
    fn excludes(&self, a: &Value, b: &Value, depth: usize) -> bool {
        let excluded = |part: &Value| self.disjoint(part, b, depth - 1);
        if list(a, "anyOf").is_some_and(|options| options.iter().all(excluded))
            || list(a, "allOf").is_some_and(|parts| parts.iter().any(excluded))
        {
            return true;
        }
        match (constants(a), constants(b)) {
            (Some(a), Some(b)) if !self.spend(a.len() * b.len()) => return false,
            (Some(a), Some(b)) if a.iter().all(|a| !b.iter().any(|b| may_be_equal(a, b))) => return true,
            (Some(values), None) if values.iter().all(|value| !types(b).contains(&type_of(value))) => return true,
            _ => {}
        }
        let common: Vec<&str> = types(a).into_iter().filter(|name| types(b).contains(name)).collect();
        if common.iter().any(|name| *name != "object") {
            return false;
        }
        // A property that `a` requires and that is another in `b`.
        let is_other = |name: &str| match (&a["properties"][name], &b["properties"][name]) {
            (_, Value::Null) => b["additionalProperties"] == false && b["patternProperties"].is_null(),
            (Value::Null, _) => false,
            (a, b) => self.disjoint(a, b, depth - 1),
        };
        common.is_empty() || list(a, "required").into_iter().flatten().filter_map(Value::as_str).any(is_other)
    }
}

fn list<'a>(schema: &'a Value, key: &str) -> Option<&'a [Value]> {
    schema.get(key)?.as_array().map(Vec::as_slice)
}

/// The values that a schema lists.
fn constants(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(list))) => Some(list.iter().collect()),
        _ => None,
    }
}

/// Numbers are equal by value, `1` and `1.0`; lists and objects are not looked into.
fn may_be_equal(a: &Value, b: &Value) -> bool {
    a == b
        || a.as_f64().is_some_and(|a| b.as_f64() == Some(a))
        || (type_of(a) == type_of(b) && (a.is_array() || a.is_object()))
}

/// `integer` counts as `number`.
fn types(schema: &Value) -> Vec<&str> {
    let list = match schema.get("type") {
        None => return vec!["array", "boolean", "null", "number", "object", "string"],
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    list.iter().filter_map(Value::as_str).map(|name| if name == "integer" { "number" } else { name }).collect()
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
