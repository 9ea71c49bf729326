//! Histories that strict templates refuse, put into forms that they take.
//!
//! Agents send system text in the middle, two user messages in a row, several calls at once, or system text to a model that has no
//! place for it. The messages go to the template as they came. If it refuses them, or leaves out system text, other forms follow,
//! each a step further from them: what a turn needs must not change how the turns before it were written. Text that comes late
//! changes nothing before it, so that a prompt grows at its end only.

use kapitsa_text::{Message, Prompt, TextError};
use serde_json::{Value, json};

/// Puts a history into another form.
type Form = fn(&[Message]) -> Vec<Message>;

/// Forms of a history, from the nearest to what was sent.
const FORMS: [Form; 4] = [<[Message]>::to_vec, system_first, merged, without_system];

/// Renders the messages in the first form that the template takes.
///
/// # Errors
/// What the template says about the simplest form.
pub(crate) fn render(
    messages: &[Message],
    render: impl Fn(&[Message]) -> Result<Prompt, TextError>,
) -> Result<Prompt, TextError> {
    let is_whole = |prompt: &Prompt| system_texts(messages).all(|text| prompt.text.contains(text.trim()));
    let mut best = render(messages);
    let apart = one_call_each(messages);
    let simpler = FORMS[1..].iter().map(|form| form(messages));
    for form in simpler.chain(apart.iter().flat_map(|apart| FORMS.iter().map(|form| form(apart)))) {
        match &best {
            Ok(prompt) if is_whole(prompt) => break,
            Ok(_) | Err(TextError::TemplateRefused { .. } | TextError::TemplateRender { .. }) => {}
            Err(_) => break,
        }
        match render(&form) {
            Ok(prompt) if best.is_err() || is_whole(&prompt) => best = Ok(prompt),
            Ok(_) => {}
            // What the template says of the simplest form is what no form helps.
            Err(error) => best = best.or(Err(error)),
        }
    }
    best
}

fn is_system(message: &Message) -> bool {
    matches!(message.role.as_str(), "system" | "developer")
}

fn system_texts(messages: &[Message]) -> impl Iterator<Item = String> {
    messages.iter().filter(|message| is_system(message)).filter_map(Message::text)
}

/// System text at the head is one message. Later system text ends the result of a tool that it follows, else it is a message of the
/// user: after a result, that would be a new question, and templates write the turns before a question without their thinking.
fn system_first(messages: &[Message]) -> Vec<Message> {
    let head = messages.iter().take_while(|message| is_system(message)).count();
    let mut changed: Vec<Message> = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        let mut message = message.clone();
        if !is_system(&message) {
            changed.push(message);
        } else if index < head {
            message.role = "system".into();
            join(&mut changed, message);
        } else {
            message.role = "user".into();
            match changed.last_mut().filter(|last| last.role == "tool") {
                Some(result) => end_with(result, message),
                None => changed.push(message),
            }
        }
    }
    changed
}

/// As [`system_first`], with neighbours of the user as one message.
fn merged(messages: &[Message]) -> Vec<Message> {
    let mut merged = Vec::with_capacity(messages.len());
    system_first(messages).into_iter().for_each(|message| join(&mut merged, message));
    merged
}

/// As [`merged`], with all system text in messages of the user.
fn without_system(messages: &[Message]) -> Vec<Message> {
    let mut merged: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        let mut message = message.clone();
        if is_system(&message) {
            message.role = "user".into();
        }
        join(&mut merged, message);
    }
    merged
}

/// Appends a message, to the one before it if both are text of the user or of the system.
fn join(messages: &mut Vec<Message>, message: Message) {
    if let Some(last) = messages.last_mut().filter(|last| last.role == message.role)
        && matches!(message.role.as_str(), "user" | "system")
        && let (Some(before), Some(text)) = (last.text(), message.text())
    {
        last.content = format!("{before}\n\n{text}").into();
    } else {
        messages.push(message);
    }
}

/// Adds system text to the result of a tool, which may hold images.
fn end_with(result: &mut Message, text: Message) {
    match (result.text(), text.text(), &mut result.content) {
        (Some(before), Some(text), _) if before.trim().is_empty() => result.content = text.into(),
        (Some(before), Some(text), _) => result.content = format!("{before}\n\n{text}").into(),
        (None, Some(text), Value::Array(parts)) => parts.push(json!({"type": "text", "text": text})),
        _ => {}
    }
}

/// Each call in a message of its own with its result after it, for templates that take no more; `None` if that is so already.
/// Results keep their order, and so do images in them.
fn one_call_each(messages: &[Message]) -> Option<Vec<Message>> {
    let calls =
        |message: &Message| message.fields.get("tool_calls").and_then(Value::as_array).cloned().unwrap_or_default();
    messages.iter().find(|message| calls(message).len() > 1)?;
    let mut apart = Vec::with_capacity(messages.len());
    let mut rest = messages.iter().peekable();
    while let Some(message) = rest.next() {
        let mut open = calls(message);
        if open.len() < 2 {
            apart.push(message.clone());
            continue;
        }
        // What was thought and said stands before the first.
        let mut next = message.clone();
        let mut say = |call: Value, apart: &mut Vec<Message>| {
            next.fields.insert("tool_calls".into(), json!([call]));
            apart.push(std::mem::replace(&mut next, Message::assistant("")));
        };
        while let Some(result) = rest.next_if(|message| message.role == "tool" && !open.is_empty()) {
            let id = result.fields.get("tool_call_id");
            let answered = open.iter().position(|call| call.get("id") == id).unwrap_or(0);
            say(open.remove(answered), &mut apart);
            apart.push(result.clone());
        }
        open.into_iter().for_each(|call| say(call, &mut apart));
    }
    Some(apart)
}

#[cfg(test)]
mod tests {
    use kapitsa_text::{ChatTemplate, RenderOptions};

    use super::*;

    const STRICT: &str = "{% for m in messages %}\
        {% if m.role == 'system' and not loop.first %}{{ raise_exception('system must come first') }}{% endif %}\
        {% if loop.index0 and m.role == messages[loop.index0 - 1].role %}{{ raise_exception('roles must alternate') }}{% endif %}\
        [{{ m.role }}:{{ m.content }}]{% endfor %}";
    const NO_SYSTEM: &str = "{% for m in messages %}\
        {% if m.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}\
        {% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}\
        [{{ m.role }}:{{ m.content }}]{% endfor %}";
    const FORGETFUL: &str = "{% for m in messages %}{% if m.role != 'system' or loop.first %}[{{ m.role }}:{{ m.content }}]{% endif %}{% endfor %}";

    fn rendered(template: &str, messages: &[(&str, &str)]) -> Result<String, String> {
        let template = ChatTemplate::new(template).unwrap();
        let messages: Vec<Message> = messages.iter().map(|(role, text)| Message::new(*role, *text)).collect();
        render(&messages, |messages| template.render(messages, &RenderOptions::default()))
            .map(|prompt| prompt.text)
            .map_err(|error| error.to_string())
    }

    const LATE: [(&str, &str); 5] =
        [("system", "S"), ("user", "a"), ("assistant", "b"), ("system", "T"), ("user", "c")];

    #[test]
    fn late_system_text_and_neighbours_are_taken_by_strict_templates() {
        let expected = "[system:S][user:a][assistant:b][user:T\n\nc]";
        for template in [STRICT, FORGETFUL] {
            let expected =
                if template == STRICT { expected } else { "[system:S][user:a][assistant:b][user:T][user:c]" };
            assert_eq!(rendered(template, &LATE).unwrap(), expected);
            // What was rendered before is still the beginning.
            assert!(expected.starts_with(&rendered(template, &LATE[..3]).unwrap()));
        }
        let twice = [("developer", "S"), ("system", "T"), ("user", "a"), ("user", "b")];
        assert_eq!(rendered(STRICT, &twice).unwrap(), "[system:S\n\nT][user:a\n\nb]");
    }

    #[test]
    fn system_text_goes_to_the_user_where_there_is_no_system() {
        assert_eq!(rendered(NO_SYSTEM, &LATE).unwrap(), "[user:S\n\na][assistant:b][user:T\n\nc]");
    }

    /// With both joined, a late system text would have changed what was said long before it.
    #[test]
    fn neighbours_stay_apart_where_the_template_takes_them() {
        let strict = "{% for m in messages %}{% if m.role == 'system' and loop.index0 %}{{ raise_exception('first') }}{% endif %}\
            [{{ m.role }}:{{ m.content }}]{% endfor %}";
        let messages =
            [("user", "a"), ("user", "b"), ("assistant", "c"), ("system", "T"), ("tool", "r"), ("system", "U")];
        let before = rendered(strict, &messages[..3]).unwrap();
        assert_eq!(before, "[user:a][user:b][assistant:c]");
        assert_eq!(rendered(strict, &messages).unwrap(), before + "[user:T][tool:r\n\nU]");
    }

    #[test]
    fn calls_are_told_one_by_one_where_the_template_takes_no_more() {
        let template = "{% for m in messages %}{% if m.tool_calls | default([]) | length > 1 %}{{ raise_exception('one call') }}\
            {% endif %}[{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}]{% endfor %}";
        let template = ChatTemplate::new(template).unwrap();
        let call = |id: &str| json!({"id": id, "function": {"name": id, "arguments": {}}});
        let result = |id: &str| {
            let mut message = Message::new("tool", format!("of {id}"));
            message.fields.insert("tool_call_id".into(), id.into());
            message
        };
        let mut assistant = Message::assistant("look ");
        assistant.fields.insert("tool_calls".into(), json!([call("a"), call("b"), call("c")]));
        let messages = [Message::user("q"), assistant, result("b"), result("a"), Message::user("r")];
        let prompt = render(&messages, |messages| template.render(messages, &RenderOptions::default())).unwrap();
        let expected = "[user:q][assistant:look b][tool:of b][assistant:a][tool:of a][assistant:c][user:r]";
        assert_eq!(prompt.text, expected);
    }

    #[test]
    fn what_no_form_helps_is_refused_in_the_words_of_the_template() {
        let error = rendered(NO_SYSTEM, &[("assistant", "b"), ("assistant", "c")]).unwrap_err();
        assert_eq!(error, "the model's chat template refuses these messages: roles must alternate");
    }
}
