//! Objects whose optional properties may come in any order.
//!
//! `llguidance` writes the properties of an object in the schema's order: once the model has named a later one, those before
//! it can no longer come. Here a rule has a parameter with a bit for each property that has come.

use serde_json::{Map, Value};

use crate::grammar::quoted;
use crate::schema::{MAX_VALUES, Schema, WHITESPACE};

/// The parameter has 64 bits.
pub(crate) const MAX_PROPERTIES: usize = 60;

/// Alternatives of two rules for members that come at most once each, in any order but for the required ones.
pub(crate) struct Members {
    /// Of the rule that begins with the first member to come.
    pub(crate) first: Vec<String>,
    /// Of the rule with the parameter, for what follows a member.
    pub(crate) rest: Vec<String>,
    /// Condition for the end: all required members have come. Empty if there are none.
    pub(crate) complete: String,
}

/// Each of `pairs` is an expression for a member and whether it is required; there are at most [`MAX_PROPERTIES`]. `rest` is
/// the name of the rule for what follows; the caller adds the ends of both.
pub(crate) fn members(pairs: &[(String, bool)], before_first: &str, between: &str, rest: &str) -> Members {
    // A required member waits for the one before it.
    let mut last_required: Option<usize> = None;
    let (mut first, mut others) = (vec![], vec![]);
    for (bit, (pair, is_required)) in pairs.iter().enumerate() {
        let once = match last_required.filter(|_| *is_required) {
            Some(before) => format!("and(bit_clear({bit}), bit_set({before}))"),
            None => {
                first.push(format!("{before_first} {pair} {rest}::{:#x}", 1u64 << bit));
                format!("bit_clear({bit})")
            }
        };
        others.push(format!("{between} {pair} {rest}::set_bit({bit}) %if {once}"));
        if *is_required {
            last_required = Some(bit);
        }
    }
    let complete = last_required.map_or_else(String::new, |bit| format!(" %if bit_set({bit})"));
    Members { first, rest: others, complete }
}

/// A Lark grammar for the outermost object of a schema, if it is one that this can be done for, and has to be: without
/// optional properties the order is not in question. `part` adds the grammar of a value and says how to refer to it.
pub(crate) fn any_order(schema: &Schema, part: &mut dyn FnMut(Value) -> String) -> Option<String> {
    let object = schema.outermost().as_object()?;
    let known = ["type", "properties", "required", "additionalProperties"];
    if object.get("type")?.as_str()? != "object" || !object.keys().all(|key| known.contains(&key.as_str())) {
        return None;
    }
    let none = Map::new();
    let properties = object.get("properties").map_or(Some(&none), Value::as_object)?;
    let required: Vec<&str> =
        object.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let is_required = |name: &str| required.contains(&name);
    if !required.iter().all(|name| properties.get(*name).is_some_and(|value| *value != Value::Bool(false)))
        || properties.keys().all(|name| is_required(name))
        || properties.len() > MAX_PROPERTIES
        || schema.values_in(properties.values()) > MAX_VALUES
    {
        return None;
    }

    let declared = properties.iter().filter(|(_, value)| **value != Value::Bool(false));
    let pairs: Vec<(String, bool)> = declared
        // Names are JSON strings, which are in turn strings of Lark.
        .map(|(name, value)| {
            (format!("{} \":\" {}", quoted(&quoted(name)), part(schema.with_definitions(value))), name)
        })
        .map(|(pair, name)| (pair, is_required(name)))
        .collect();
    let Members { mut first, mut rest, complete } = members(&pairs, "\"{\"", "\",\"", "rest");
    // The end, and properties that are not declared, wait for all that are required.
    if complete.is_empty() {
        first.push("\"{\" \"}\"".to_owned());
    }
    rest.push(format!("\"}}\"{complete}"));
    let mut names = String::new();
    let additional = object.get("additionalProperties").unwrap_or(&Value::Bool(true));
    if *additional != Value::Bool(false) {
        let pair = format!("NAME \":\" {}", part(schema.with_definitions(additional)));
        if complete.is_empty() {
            first.push(format!("\"{{\" {pair} rest::0x0"));
        }
        rest.push(format!("\",\" {pair} rest::_{complete}"));
        // Without escapes, so that none can be a declared name in disguise.
        let declared: Vec<String> = properties.keys().map(|name| quoted(&quoted(name))).collect();
        names = format!("NAME: /\"[^\"\\\\\\x00-\\x1F\\x7F]*\"/ & ~( {} )\n", declared.join(" | "));
    }
    let (first, rest) = (first.join("\n  | "), rest.join("\n  | "));
    Some(format!(
        "%llguidance {{\"ignore_once\": true}}\n%ignore /{WHITESPACE}/\n{names}start: {first}\nrest::_: {rest}\n"
    ))
}
