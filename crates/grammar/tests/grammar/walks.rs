//! Whatever tokens the masks allow, the text is valid by the judgement of another library.

use kapitsa_grammar::Grammar;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::common::{Model, assert_valid, real_models, small_models, walk};

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"type": "string"})),
        Just(json!({"type": ["boolean", "null"]})),
        Just(json!({"type": "number"})),
        Just(json!({"type": "string", "format": "date", "pattern": "-29$"})),
        (-50i64..50, 0i64..100)
            .prop_map(|(low, size)| json!({"type": "integer", "minimum": low, "maximum": low + size})),
        (0u64..5, 0u64..5).prop_map(|(min, more)| json!({"type": "string", "minLength": min, "maxLength": min + more})),
        prop::collection::vec("[a-z\"\\\\é ]{0,6}", 1..4).prop_map(|values| json!({"enum": values})),
        prop::sample::select(vec!["date", "date-time", "duration", "ipv4", "ipv6", "time", "uuid"])
            .prop_map(|format| json!({"type": "string", "format": format})),
        prop::sample::select(vec!["^[a-f]{2,5}$", "^(ab|cd)+x?$", "^\\w{1,4}@\\w+$"])
            .prop_map(|pattern| json!({"type": "string", "pattern": pattern})),
        Just(json!({"$ref": "#/$defs/shared"})),
        Just(json!({"const": {"a": [1, "x", null]}})),
    ]
}

fn object(
    properties: impl Strategy<Value = Vec<(String, Value, bool)>>,
    other: impl Strategy<Value = Value>,
) -> impl Strategy<Value = Value> {
    (properties, prop_oneof![Just(json!(false)), Just(json!(true)), other]).prop_map(|(mut properties, other)| {
        let mut names = std::collections::HashSet::new();
        properties.retain(|of| names.insert(of.0.clone()));
        let required: Vec<&String> = properties.iter().filter(|of| of.2).map(|of| &of.0).collect();
        let all: Map<String, Value> = properties.iter().map(|of| (of.0.clone(), of.1.clone())).collect();
        json!({"type": "object", "properties": all, "required": required, "additionalProperties": other})
    })
}

fn schema() -> impl Strategy<Value = Value> {
    let inner = leaf().prop_recursive(3, 20, 4, |inner| {
        let properties = prop::collection::vec(("[a-d\"é]{1,3}", inner.clone(), any::<bool>()), 0..5);
        prop_oneof![
            object(properties, inner.clone()),
            (inner.clone(), 0u64..3, 0u64..3).prop_map(
                |(items, min, more)| json!({"type": "array", "items": items, "minItems": min, "maxItems": min + more})
            ),
            prop::collection::vec(inner.clone(), 1..3).prop_map(
                |items| json!({"type": "array", "minItems": items.len(), "prefixItems": items, "items": false})
            ),
            prop::collection::vec(inner, 1..3).prop_map(|options| json!({"anyOf": options})),
        ]
    });
    (inner, leaf()).prop_map(|(mut schema, shared)| {
        let shared = if shared.get("$ref").is_some() { json!({"type": "integer"}) } else { shared };
        schema["$defs"] = json!({"shared": shared});
        schema
    })
}

fn check(models: &[Model], schema: &Value, seed: u64) {
    let grammar = Grammar::json_schema(schema).unwrap();
    for model in models {
        let compiled = model.compile(&grammar).unwrap_or_else(|error| panic!("{error}: {schema}"));
        assert_valid(schema, &walk(model, &compiled, seed as usize % 40, &mut fastrand::Rng::with_seed(seed)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 20, ..ProptestConfig::default() })]
    #[test]
    fn replies_are_valid(schema in schema(), seed: u64) {
        thread_local! { static MODELS: Vec<Model> = small_models().into_iter().take(1).chain(real_models().into_iter().take(1)).collect(); }
        MODELS.with(|models| check(models, &schema, seed));
    }
}
