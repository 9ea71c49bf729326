//! What the text of a turn may be: forced calls, strict tools and the form of the answer, as one grammar.
//!
//! - Thinking is free; the grammar begins after it.
//! - A forced call is written in the words of the model's dialect. Only one if it is forced by name.
//! - Where calls are forbidden, text has nothing that begins one.
//! - Where calls are free, but a tool is strict or has a grammar, text goes on freely up to a call, and all calls obey.
//! - With a form for the answer and tools, the answer is calls or has that form.
//! - Arguments have declared parameters only, unless the schema says of others that they may come.
//! - Arguments of a tool that is not strict obey its schema where that can be enforced, and are any object where not: nobody
//!   was promised more. What has to obey and cannot is an error.

use std::borrow::Cow;

use kapitsa_dialects::{Arguments, Dialect, Form};
use kapitsa_grammar::{Grammar, GrammarError, Tags};
use serde_json::{Value, json};

use super::{AnswerFormat, TEXT_INPUT, Tool, ToolChoice, ToolInput, TurnRequest};
use crate::Error;

/// Where a prompt leaves the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Start {
    /// In its answer.
    Answer,
    /// In its answer, before which it may think.
    MayThink,
    /// In its thinking.
    Thinks,
}

/// A part of a grammar, and the place in the request that asks for it.
pub(crate) type Part = (String, Grammar);

/// A grammar for a turn, and its parts: what the request asks for in each place.
pub(crate) struct Rules {
    pub(crate) grammar: Grammar,
    pub(crate) parts: Vec<Part>,
}

impl Rules {
    /// What the text of a turn is held to; `None` if it is free.
    ///
    /// # Errors
    /// If the request asks for what cannot be enforced.
    pub(crate) fn new(request: &TurnRequest, dialect: Dialect, start: Start) -> Result<Option<Self>, Error> {
        let mut writer = Writer { form: dialect.form(), parts: vec![] };
        let Some(answer) = writer.answer(request)? else { return Ok(None) };
        let grammar = Grammar::concat([thinking(start)?, answer]);
        Ok(Some(Rules { grammar, parts: writer.parts }))
    }
}

/// What may come before the answer.
fn thinking(start: Start) -> Result<Grammar, Error> {
    let newlines = || unplaced(Grammar::regex(r"\n{0,4}"));
    let closed = || Ok::<_, Error>(Grammar::concat([Grammar::text_until("</think>"), newlines()?]));
    match start {
        Start::Answer => Ok(Grammar::literal("")),
        Start::Thinks => closed(),
        Start::MayThink => Ok(Grammar::concat([newlines()?, Grammar::literal("<think>"), closed()?]).optional()),
    }
}

fn unplaced<T>(result: Result<T, GrammarError>) -> Result<T, Error> {
    result.map_err(|source| Error::Grammar { place: "the request".into(), source })
}

struct Writer {
    form: &'static Form,
    parts: Vec<Part>,
}

impl Writer {
    fn answer(&mut self, request: &TurnRequest) -> Result<Option<Grammar>, Error> {
        let tools = request.offered_tools();
        let has_rules = |tool: &Tool| {
            matches!(&tool.input, ToolInput::Json { strict: true, .. } | ToolInput::Text { grammar: Some(_) })
        };
        Ok(match (&request.tool_choice, &request.format) {
            (ToolChoice::Named(name), _) => {
                let named: Vec<&Tool> = tools.iter().filter(|tool| tool.name == *name).collect();
                Some(self.calls(&named, true)?)
            }
            (ToolChoice::Required, _) => Some(self.calls(&tools.iter().collect::<Vec<_>>(), request.one_call)?),
            // The tools are still shown, so that the prompt goes on from the one before.
            (ToolChoice::None, AnswerFormat::Text) => {
                let forbidden = if request.tools.is_empty() { &[] } else { self.form.triggers };
                (!forbidden.is_empty()).then(|| Grammar::text_without(forbidden))
            }
            (_, AnswerFormat::Text) if tools.iter().any(has_rules) => Some(self.text_with_calls(tools)?),
            (_, AnswerFormat::Text) => None,
            (_, format) => {
                let form = self.format(format)?;
                let calls = match tools {
                    [] => None,
                    // A call that is JSON itself would be taken for the answer: in a list it cannot be, if that is an object.
                    _ if self.form.triggers.is_empty() => match format {
                        AnswerFormat::JsonSchema { schema, .. } if schema["type"] != "object" => None,
                        _ => {
                            let call = self.calls(&tools.iter().collect::<Vec<_>>(), true)?;
                            Some(Grammar::concat([Grammar::literal("["), call, Grammar::literal("]")]))
                        }
                    },
                    _ => Some(self.calls(&tools.iter().collect::<Vec<_>>(), request.one_call)?),
                };
                Some(Grammar::choice([form].into_iter().chain(calls)))
            }
        })
    }

    fn format(&mut self, format: &AnswerFormat) -> Result<Grammar, Error> {
        match format {
            AnswerFormat::Text => Ok(Grammar::text_without(&[])),
            AnswerFormat::JsonObject => Ok(Grammar::any_json_object()),
            AnswerFormat::JsonSchema { place, schema } => self.part(place, Grammar::json_schema(schema)),
        }
    }

    /// At least one call.
    fn calls(&mut self, tools: &[&Tool], only_one: bool) -> Result<Grammar, Error> {
        let Form { before_name, between, .. } = *self.form;
        let rest = tools.iter().map(|tool| self.rest(tool)).collect::<Result<Vec<_>, _>>()?;
        let call = Grammar::concat([Grammar::literal(before_name), Grammar::choice(rest)]);
        Ok(match between {
            Some(between) if !only_one => {
                let next = Grammar::concat([Grammar::literal(between), call.clone()]);
                Grammar::concat([call, next.repeat(0, None)])
            }
            _ => call,
        })
    }

    fn text_with_calls(&mut self, tools: &[Tool]) -> Result<Grammar, Error> {
        let Form { before_name, triggers, .. } = *self.form;
        let rest = tools.iter().map(|tool| self.rest(tool)).collect::<Result<Vec<_>, _>>()?;
        let rest = Grammar::choice(rest);
        if triggers.is_empty() {
            // A call is the whole answer, and text is what cannot be taken for one.
            let call = Grammar::concat([Grammar::literal(before_name), rest]);
            return Ok(Grammar::choice([call, unplaced(Grammar::regex(r"(?s:[^\s{\[`].*)?"))?]));
        }
        let calls = triggers.iter().map(|trigger| {
            // What is left of the beginning after the trigger, wherever in it the trigger is.
            let after = before_name.split_once(trigger).map_or("", |(_, after)| after);
            ((*trigger).to_owned(), Grammar::concat([Grammar::literal(after), rest.clone()]))
        });
        Ok(Grammar::text_with_calls(calls))
    }

    /// A call, from its name on.
    fn rest(&mut self, tool: &Tool) -> Result<Grammar, Error> {
        let Form { after_name, arguments, after_arguments, .. } = *self.form;
        let name = match arguments {
            Arguments::Json => {
                let quoted = Value::from(tool.name.as_str()).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            }
            Arguments::Tagged { .. } => tool.name.clone(),
        };
        let head = Grammar::literal(&[&name, after_name].concat());
        Ok(Grammar::concat([head, self.arguments(tool)?, Grammar::literal(after_arguments)]))
    }

    fn arguments(&mut self, tool: &Tool) -> Result<Grammar, Error> {
        match (&tool.input, self.form.arguments) {
            (ToolInput::Json { schema, strict }, _) => match self.object(schema) {
                Err(error) if !strict => {
                    tracing::debug!(place = tool.place, %error, "arguments are any object");
                    self.part(&tool.place, self.object(&json!({"type": "object"})))
                }
                grammar => self.part(&tool.place, grammar),
            },
            (ToolInput::Text { grammar: None }, _) => {
                let schema = json!({
                    "type": "object", "properties": {TEXT_INPUT: {"type": "string"}}, "required": [TEXT_INPUT],
                    "additionalProperties": false,
                });
                self.part(&tool.place, self.object(&schema))
            }
            (ToolInput::Text { grammar: Some(lark) }, Arguments::Json) => {
                let text = self.part(&tool.place, Grammar::lark_in_json_string(lark))?;
                let (before, after) = (format!("{{\"{TEXT_INPUT}\": \""), "\"}");
                Ok(Grammar::concat([Grammar::literal(&before), text, Grammar::literal(after)]))
            }
            (ToolInput::Text { grammar: Some(lark) }, Arguments::Tagged { before_name, after_name, after_value }) => {
                let text = self.part(&tool.place, Grammar::lark(lark))?;
                let before = [before_name, TEXT_INPUT, after_name].concat();
                Ok(Grammar::concat([Grammar::literal(&before), text, Grammar::literal(after_value)]))
            }
        }
    }

    fn object(&self, schema: &Value) -> Result<Grammar, GrammarError> {
        match self.form.arguments {
            Arguments::Json => Grammar::json_schema(&arguments_schema(schema)),
            Arguments::Tagged { before_name, after_name, after_value } => {
                Grammar::tagged_object(schema, &Tags { before_name, after_name, after_value })
            }
        }
    }

    /// Keeps a part with its place.
    fn part(&mut self, place: &str, grammar: Result<Grammar, GrammarError>) -> Result<Grammar, Error> {
        let grammar = grammar.map_err(|source| Error::Grammar { place: place.to_owned(), source })?;
        self.parts.push((place.to_owned(), grammar.clone()));
        Ok(grammar)
    }
}

/// The schema of arguments: an object if it says nothing of its type, with the declared properties and no others if it does not say
/// whether there may be others.
fn arguments_schema(schema: &Value) -> Cow<'_, Value> {
    let has = |keys: &[&str]| keys.iter().any(|key| schema.get(key).is_some());
    let declares = schema["properties"].as_object().is_some_and(|all| !all.is_empty());
    let is_typed = has(&["type", "$ref", "allOf", "anyOf", "oneOf", "enum", "const"]);
    let is_closed = schema["type"] != "object" || !declares || has(&["additionalProperties", "patternProperties"]);
    if !schema.is_object() || (is_typed && is_closed) {
        return Cow::Borrowed(schema);
    }
    let mut schema = schema.clone();
    if !is_typed {
        schema["type"] = "object".into();
    }
    if !is_closed {
        schema["additionalProperties"] = false.into();
    }
    Cow::Owned(schema)
}
