//! Large and hostile schemas: compiled in no time, or refused with the limit.

use kapitsa_grammar::{Grammar, MAX_DEPTH, MAX_VALUES, Tags};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::common::{small_models, walk};

#[test]
fn large_schemas_compile() {
    let model = &small_models()[0];
    let names: Vec<String> = (0..4000).map(|index| format!("value number {index}")).collect();
    for schema in [
        json!({"enum": names}),
        json!({"type": "object", "properties": {"a": {"enum": names}, "b": {"enum": names}}}),
        json!({"type": "array", "items": {"type": "integer"}, "maxItems": 30_000}),
        json!({"type": "string", "maxLength": 100_000}),
        json!({"oneOf": (0..500).map(|index| json!({"const": index})).collect::<Vec<_>>()}),
        json!({"type": "string", "pattern": "^[a-z]{0,100000}$"}),
    ] {
        let compiled = model.compile(&Grammar::json_schema(&schema).unwrap()).unwrap();
        walk(model, &compiled, 5, &mut fastrand::Rng::with_seed(1));
    }
}

#[test]
fn what_is_too_large_is_refused_with_the_limit() {
    let many = json!({"enum": (0..MAX_VALUES).collect::<Vec<_>>()});
    let message = Grammar::json_schema(&many).unwrap_err().to_string();
    assert_eq!(message, "JSON schema: `enum` at `#`: more than 20000 subschemas and values");
    let options: Vec<Value> = (0..5_000).map(|index| json!({"const": index})).collect();
    let message = Grammar::json_schema(&json!({"oneOf": options})).unwrap_err().to_string();
    assert!(message.contains("may both match"), "{message}");
    let nested = (0..=MAX_DEPTH).fold(json!(true), |inner, _| json!({"items": inner}));
    let message = Grammar::json_schema(&nested).unwrap_err().to_string();
    assert!(message.ends_with("it is more than 128 schemas deep"), "{message}");
    // A chain of references is as deep as what it leads to.
    let chain: Map<String, Value> = (0..5000)
        .map(|index| (format!("{index}"), json!({"items": {"$ref": format!("#/$defs/{}", index + 1)}})))
        .collect();
    let message = Grammar::json_schema(&json!({"$ref": "#/$defs/0", "$defs": chain})).unwrap_err().to_string();
    assert!(message.contains("128 schemas deep"), "{message}");
}

#[test]
fn what_the_compiler_finds_too_large_is_an_error() {
    let model = &small_models()[0];
    let deep = (0..MAX_DEPTH - 1).fold(json!({"type": "null"}), |inner, _| json!({"type": "array", "items": inner}));
    model.compile(&Grammar::json_schema(&deep).unwrap()).unwrap();
    let option = |part: usize, index: usize| json!({"required": [format!("{part}"), format!("x{index}")]});
    let part = |part: usize| json!({"anyOf": (0..8).map(|index| option(part, index)).collect::<Vec<_>>()});
    let product = json!({"type": "object", "allOf": (0..12).map(part).collect::<Vec<_>>()});
    let error = model.compile(&Grammar::json_schema(&product).unwrap()).unwrap_err().to_string();
    assert_eq!(error, "grammar: schema too large");
    let nested = "(".repeat(200) + "a" + &"{0,50})".repeat(200);
    for schema in [
        json!({"type": "string", "pattern": nested}),
        json!({"type": "string", "pattern": "((a{1000}b){1000}c){1000}"}),
    ] {
        let compiled = Grammar::json_schema(&schema).and_then(|grammar| model.compile(&grammar));
        if let Err(error) = &compiled {
            assert!(error.to_string().len() < 400, "{error}");
        }
    }
}

const KEYS: &[&str] = &[
    "$defs",
    "$id",
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
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "required",
    "type",
    "uniqueItems",
    "x-guidance",
    "title",
];

/// JSON that looks like a schema here and there.
fn hostile() -> impl Strategy<Value = Value> {
    let texts = [
        "string",
        "object",
        "array",
        "integer",
        "number",
        "null",
        "#",
        "#/$defs/a",
        "#/properties/a",
        "a",
        "date",
        "^a+$",
        "[a-",
        "(a*)*b",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "é\u{7f}\u{0}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop::sample::select(vec![0.0, -1.0, 1.0, 2.5, 1e-320, 1e300, -1e17, 3e4]).prop_map(Value::from),
        (-5i64..40).prop_map(Value::from),
        prop::sample::select(vec![u64::MAX, 1 << 53, 100_000]).prop_map(Value::from),
        prop::sample::select(texts.to_vec()).prop_map(Value::from),
    ];
    let key = || prop_oneof![6 => prop::sample::select(KEYS), 1 => prop::sample::select(vec!["a", "b"])];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            4 => prop::collection::vec((key(), inner), 0..5)
                .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn whatever_a_schema_holds_the_worst_is_an_error(schema in hostile(), lark in ".{0,40}") {
        thread_local! { static MODEL: crate::common::Model = small_models().remove(0); }
        MODEL.with(|model| {
            let tags = Tags { before_name: "<", after_name: ">", after_value: "</>" };
            let grammars = [Grammar::json_schema(&schema), Grammar::tagged_object(&schema, &tags)];
            for compiled in grammars.into_iter().flatten().flat_map(|grammar| model.compile(&grammar)) {
                let mut matcher = compiled.matcher();
                while let Ok(mask) = matcher.mask()
                    && let Some(id) = mask.tokens().last()
                    && !mask.may_end()
                    && matcher.accept(id).is_ok()
                    && mask.tokens().count() < 3
                {}
            }
            let _ = Grammar::lark(&format!("start: {lark}")).map(|grammar| model.compile(&grammar));
            let _ = Grammar::regex(&lark).map(|grammar| model.compile(&grammar));
        });
    }
}
