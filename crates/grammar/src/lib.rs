//! What a reply may say: JSON schemas, regular expressions and grammars, as masks over the tokens of a model.
//!
//! A [`Grammar`] says which texts are allowed. It is compiled against the [`Vocabulary`] of a model into a
//! [`CompiledGrammar`], which any number of replies share; each reply follows it with a [`Matcher`]: a [`Mask`] of the
//! tokens that may come next, then the token that was chosen, again and again. The matching itself is the work of the
//! library `llguidance`; nothing of it shows here.
//!
//! Schemas, expressions and grammars come from strangers; whatever they hold, the worst result is an error value. What a
//! schema asks for and cannot be held to is such an error, with keyword and place ([`supported_keywords`]).
//!
//! ```
//! use kapitsa_grammar::Grammar;
//! use serde_json::json;
//!
//! let arguments = Grammar::json_schema(&json!({"type": "object", "properties": {"path": {"type": "string"}}}))?;
//! let call = Grammar::concat([Grammar::literal("<tool_call>\n{\"name\": \"ls\", \"arguments\": "), arguments]);
//! # let _ = call;
//! let error = Grammar::json_schema(&json!({"type": "array", "contains": {"const": 1}})).unwrap_err();
//! assert_eq!(error.to_string(), "JSON schema: `contains` at `#`: it is not supported");
//! # Ok::<(), kapitsa_grammar::GrammarError>(())
//! ```
#![forbid(unsafe_code)]

mod disjoint;
mod error;
mod formats;
mod grammar;
mod lark_json;
mod lark_text;
mod lark_tree;
mod matcher;
mod object;
mod schema;
mod tagged;
mod vocabulary;

pub use error::GrammarError;
pub use grammar::Grammar;
pub use matcher::{CompiledGrammar, Mask, Matcher};
pub use schema::{MAX_DEPTH, MAX_VALUES, supported_formats, supported_keywords};
pub use tagged::Tags;
pub use vocabulary::Vocabulary;
