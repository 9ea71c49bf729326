//! The prompt of a turn: messages, tools and switches, in the form that a template takes.

pub use kapitsa_text::TEXT_INPUT;
use kapitsa_text::{Message, call_arguments};
use serde_json::{Map, Value, json};

use super::{Thinking, Tool, ToolInput, TurnRequest};

/// What a template is given.
#[derive(Clone, Debug)]
pub(crate) struct TemplateInput {
    pub(crate) messages: Vec<Message>,
    /// A list of functions; null if there are none to show.
    pub(crate) tools: Value,
    pub(crate) variables: Map<String, Value>,
}

impl TemplateInput {
    /// `shows_tools`: whether the template has a place for tools. If not, they are described in a system message, and calls and
    /// results become text. Tools are shown even if none may be called: the prompt goes on from the one before.
    pub(crate) fn new(request: &TurnRequest, shows_tools: bool) -> Self {
        let shown: Vec<Value> = request.tools.iter().map(shown).collect();
        let variables = variables(&request.thinking);
        if shows_tools {
            let tools = if shown.is_empty() { Value::Null } else { shown.into() };
            return TemplateInput { messages: request.messages.clone(), tools, variables };
        }
        TemplateInput { messages: as_text(&request.messages, &shown), tools: Value::Null, variables }
    }
}

/// A tool as templates show it. One that takes text is shown with that text as its only parameter, and calls of it in a history
/// have that form, too. A schema keeps the order of its keys.
fn shown(tool: &Tool) -> Value {
    let parameters = match &tool.input {
        ToolInput::Json { schema, .. } => schema.clone(),
        ToolInput::Text { grammar } => {
            let mut input = json!({"type": "string"});
            if let Some(grammar) = grammar {
                input["description"] = format!("Text that follows this grammar:\n{grammar}").into();
            }
            json!({"type": "object", "properties": {TEXT_INPUT: input}, "required": [TEXT_INPUT]})
        }
    };
    let mut function = json!({"name": tool.name});
    if let Some(description) = &tool.description {
        function["description"] = description.clone().into();
    }
    function["parameters"] = parameters;
    json!({"type": "function", "function": function})
}

fn variables(thinking: &Thinking) -> Map<String, Value> {
    let mut variables = Map::new();
    if let Some(enabled) = thinking.enabled {
        variables.insert("enable_thinking".into(), enabled.into());
    }
    if let Some(effort) = &thinking.effort {
        variables.insert("reasoning_effort".into(), effort.clone().into());
    }
    variables.extend(thinking.variables.clone());
    variables
}

/// Messages for a template that knows no tools: these are described at the end of the first system text, calls and results
/// are text in the form that many models know (one JSON object between `<tool_call>` and `</tool_call>`).
fn as_text(messages: &[Message], tools: &[Value]) -> Vec<Message> {
    let mut all: Vec<Message> = messages.iter().map(message_as_text).collect();
    if tools.is_empty() {
        return all;
    }
    let list: Vec<String> = tools.iter().map(|tool| tool["function"].to_string()).collect();
    let text = format!(
        "These tools can be called:\n<tools>\n{}\n</tools>\nTo call one, answer with its name and arguments in this form, one \
         for each call:\n<tool_call>\n{{\"name\": \"NAME\", \"arguments\": {{...}}}}\n</tool_call>",
        list.join("\n")
    );
    match all.first_mut().filter(|message| matches!(message.role.as_str(), "system" | "developer")) {
        Some(system) => {
            let before = system.text().unwrap_or_default();
            system.content = if before.is_empty() { text } else { format!("{before}\n\n{text}") }.into();
        }
        None => all.insert(0, Message::system(text)),
    }
    all
}

fn message_as_text(message: &Message) -> Message {
    let text = || message.text().unwrap_or_default();
    match (message.role.as_str(), message.fields.get("tool_calls").and_then(Value::as_array)) {
        ("tool", _) => match &message.content {
            // Images stay in their place.
            Value::Array(parts) if message.text().is_none() => {
                let part = |text: &str| json!({"type": "text", "text": text});
                let parts = [part("<tool_response>\n")].into_iter().chain(parts.iter().cloned());
                let content = parts.chain([part("\n</tool_response>")]).collect();
                Message { role: "user".into(), content, fields: Map::new() }
            }
            _ => Message::user(format!("<tool_response>\n{}\n</tool_response>", text())),
        },
        ("assistant", Some(calls)) if !calls.is_empty() => {
            let written = calls.iter().map(|call| {
                let function = call.get("function").unwrap_or(call);
                let arguments = call_arguments(&function["arguments"]);
                format!("<tool_call>\n{}\n</tool_call>", json!({"name": function["name"], "arguments": arguments}))
            });
            let parts = Some(text()).filter(|text| !text.is_empty()).into_iter().chain(written);
            let mut message = Message::assistant(parts.collect::<Vec<_>>().join("\n"));
            message.fields = Map::new();
            message
        }
        _ => message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ToolChoice;
    use super::*;

    fn request() -> TurnRequest {
        let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "read", "arguments": arguments}});
        let mut assistant = Message::assistant("Two files.");
        assistant.fields.insert("tool_calls".into(), json!([call("a", r#"{"path":"x"}"#), call("b", "{broken")]));
        let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
        TurnRequest {
            messages: vec![Message::user("Read."), assistant, Message::new("tool", "one"), Message::new("tool", "two")],
            tools: vec![
                Tool {
                    name: "read".into(),
                    description: Some("Reads.".into()),
                    input: ToolInput::Json { schema, strict: false },
                    place: String::new(),
                },
                Tool {
                    name: "patch".into(),
                    description: None,
                    input: ToolInput::Text { grammar: Some("start: /x/".into()) },
                    place: String::new(),
                },
            ],
            ..TurnRequest::default()
        }
    }

    #[test]
    fn a_template_that_shows_tools_gets_them_in_the_order_sent() {
        let input = TemplateInput::new(&request(), true);
        let names: Vec<_> = input.tools.as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
        assert_eq!(names, ["read", "patch"]);
        assert_eq!(input.tools[1]["function"]["parameters"]["required"], json!(["input"]));
        assert_eq!(input.messages, request().messages);
        let none = TurnRequest { tool_choice: ToolChoice::None, ..request() };
        assert_eq!(TemplateInput::new(&none, true).tools, input.tools);
    }

    #[test]
    fn a_template_without_a_place_for_tools_gets_text() {
        let messages = TemplateInput::new(&request(), false).messages;
        let roles: Vec<_> = messages.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user", "user"]);
        let text = |index: usize| messages[index].text().unwrap();
        assert!(text(0).contains(r#"{"name":"read","description":"Reads.","parameters":"#), "{}", text(0));
        assert_eq!(
            text(2),
            "Two files.\n<tool_call>\n{\"name\":\"read\",\"arguments\":{\"path\":\"x\"}}\n</tool_call>\n\
             <tool_call>\n{\"name\":\"read\",\"arguments\":\"{broken\"}\n</tool_call>"
        );
        assert_eq!(text(3), "<tool_response>\none\n</tool_response>");
    }

    #[test]
    fn images_in_results_stay_in_their_place() {
        let image = json!({"type": "image"});
        let result = Message { role: "tool".into(), content: json!([image]), fields: Map::new() };
        let request = TurnRequest { messages: vec![result], ..TurnRequest::default() };
        let content = &TemplateInput::new(&request, false).messages[0].content;
        assert_eq!(content[1], image);
        assert_eq!(
            (&content[0]["text"], &content[2]["text"]),
            (&json!("<tool_response>\n"), &json!("\n</tool_response>"))
        );
    }

    #[test]
    fn tools_join_the_system_text_that_is_there() {
        let mut request = request();
        request.messages.insert(0, Message::system("Be brief."));
        let messages = TemplateInput::new(&request, false).messages;
        assert!(messages[0].text().unwrap().starts_with("Be brief.\n\nThese tools can be called:"));
        request.tools.clear();
        assert_eq!(TemplateInput::new(&request, false).messages[0], Message::system("Be brief."));
    }

    #[test]
    fn switches_become_variables() {
        let thinking = Thinking {
            enabled: Some(false),
            effort: Some("low".into()),
            budget: None,
            variables: [("enable_thinking".to_string(), Value::Bool(true))].into_iter().collect(),
        };
        let input = TemplateInput::new(&TurnRequest { thinking, ..request() }, true);
        assert_eq!(Value::from(input.variables), json!({"enable_thinking": true, "reasoning_effort": "low"}));
    }
}
