//! Which JSON types a declared parameter may have.

use serde_json::Value;

use crate::Tool;

/// A set of JSON types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Types(u8);

/// References and alternatives are followed so deep, and so many schemas are looked at for a parameter.
const MAX_DEPTH: usize = 16;
const MAX_SCHEMAS: usize = 256;

impl Types {
    const NONE: Self = Self(0);
    pub(crate) const STRING: Self = Self(1);
    const NUMBER: Self = Self(2);
    const BOOLEAN: Self = Self(4);
    const NULL: Self = Self(8);
    const OBJECT: Self = Self(16);
    const ARRAY: Self = Self(32);
    const ANY: Self = Self(63);

    fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn named(name: &Value) -> Self {
        match name.as_str() {
            Some("string") => Self::STRING,
            Some("number" | "integer") => Self::NUMBER,
            Some("boolean") => Self::BOOLEAN,
            Some("null") => Self::NULL,
            Some("object") => Self::OBJECT,
            Some("array") => Self::ARRAY,
            _ => Self::ANY,
        }
    }

    fn of_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(_) => Self::NUMBER,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    /// What a schema allows; anything, where it does not say or cannot be followed.
    fn of_schema(schema: &Value, root: &Value, depth: usize, schemas: &mut usize) -> Self {
        if depth == MAX_DEPTH || *schemas == 0 {
            return Self::ANY;
        }
        *schemas -= 1;
        let mut of = |schema: &Value| Self::of_schema(schema, root, depth + 1, schemas);
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let target = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
            return target.map_or(Self::ANY, of);
        }
        match schema.get("type") {
            Some(Value::Array(names)) => return names.iter().map(Self::named).fold(Self::NONE, Self::and),
            Some(name) => return Self::named(name),
            None => {}
        }
        if let Some(value) = schema.get("const") {
            return Self::of_value(value);
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            return values.iter().map(Self::of_value).fold(Self::NONE, Self::and);
        }
        let list = |key| schema.get(key).and_then(Value::as_array).filter(|list| !list.is_empty());
        if let Some(schemas) = list("anyOf").or_else(|| list("oneOf")) {
            return schemas.iter().map(of).fold(Self::NONE, Self::and);
        }
        if let Some(schemas) = list("allOf") {
            return Self(schemas.iter().map(|schema| of(schema).0).fold(Self::ANY.0, |all, one| all & one));
        }
        match () {
            () if schema.get("properties").is_some() => Self::OBJECT,
            () if schema.get("items").is_some() => Self::ARRAY,
            () => Self::ANY,
        }
    }

    /// What a parameter of a tool may be; `None` if it is not declared.
    pub(crate) fn of_parameter(tool: &Tool, name: &str) -> Option<Self> {
        let schema = tool.parameters.get("properties")?.get(name)?;
        Some(Self::of_schema(schema, &tool.parameters, 0, &mut { MAX_SCHEMAS }))
    }

    /// Whether a value that begins so can only be text.
    pub(crate) fn is_text(self, first: char) -> bool {
        let other = match first {
            '{' => Self::OBJECT,
            '[' => Self::ARRAY,
            '-' | '0'..='9' => Self::NUMBER,
            't' | 'f' | 'T' | 'F' => Self::BOOLEAN,
            'n' | 'N' => Self::NULL,
            _ => Self::STRING,
        };
        self.has(Self::STRING) && (other == Self::STRING || !self.has(other))
    }

    /// The JSON that raw text stands for; `None` if it is text.
    pub(crate) fn json(self, raw: &str) -> Option<&str> {
        let raw = raw.trim();
        let raw = match raw {
            "True" => "true",
            "False" => "false",
            "None" => "null",
            raw => raw,
        };
        // Within a list, as a value that is nested as deep as JSON may be is too deep in an object.
        let list: Vec<Value> = serde_json::from_str(&format!("[{raw}]")).ok()?;
        let [value] = list.as_slice() else { return None };
        let is_meant = !self.has(Self::STRING) || (!value.is_string() && self.has(Self::of_value(value)));
        is_meant.then_some(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: Value, expected: &[Types]) {
        let parameters = json!({
            "properties": { "p": schema },
            "$defs": { "text": { "type": "string" }, "loop": { "$ref": "#/$defs/loop" }, "many": { "anyOf": [
                { "$ref": "#/$defs/many" }, { "$ref": "#/$defs/many" }, { "$ref": "#/$defs/many" }
            ] } },
        });
        let expected = expected.iter().copied().fold(Types::NONE, Types::and);
        let tool = Tool { name: "t".into(), parameters };
        assert_eq!(Types::of_parameter(&tool, "p"), Some(expected), "{tool:?}");
        assert_eq!(Types::of_parameter(&tool, "q"), None);
    }

    #[test]
    fn types_are_found_through_references_alternatives_and_values() {
        check(json!({ "type": "integer" }), &[Types::NUMBER]);
        check(json!({ "type": ["string", "null"] }), &[Types::STRING, Types::NULL]);
        check(json!({ "$ref": "#/$defs/text" }), &[Types::STRING]);
        check(json!({ "anyOf": [{ "$ref": "#/$defs/text" }, { "type": "array" }] }), &[Types::STRING, Types::ARRAY]);
        check(json!({ "allOf": [{ "description": "" }, { "type": "boolean" }] }), &[Types::BOOLEAN]);
        check(json!({ "enum": ["a", null] }), &[Types::STRING, Types::NULL]);
        check(json!({ "const": 1 }), &[Types::NUMBER]);
        check(json!({ "properties": {} }), &[Types::OBJECT]);
        check(json!({ "items": {} }), &[Types::ARRAY]);
    }

    #[test]
    fn schemas_that_say_nothing_or_never_end_allow_anything() {
        for schema in ["$defs/loop", "$defs/many", "$defs/absent"] {
            check(json!({ "$ref": format!("#/{schema}") }), &[Types::ANY]);
        }
        check(json!(true), &[Types::ANY]);
        check(json!({ "type": "frobnicated" }), &[Types::ANY]);
    }
}
