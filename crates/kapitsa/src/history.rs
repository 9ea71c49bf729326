//! Histories that strict templates refuse, put into forms that they take.
//!
//! Agents send system text in the middle, two user messages in a row, or system text to a model that has no place for it.
//! The messages go to the template as they came. If it refuses them, or leaves out system text, simpler forms follow. Text
//! that comes late changes nothing before it, so that a prompt grows at its end only.

use kapitsa_text::{Message, Prompt, TextError};

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
    for form in [merged, without_system] {
        match &best {
            Ok(prompt) if is_whole(prompt) => break,
            Ok(_) | Err(TextError::TemplateRefused { .. } | TextError::TemplateRender { .. }) => {}
            Err(_) => break,
        }
        match render(&form(messages)) {
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

/// System text at the head is one message, later system text is of the user, and neighbours of the user are one message.
fn merged(messages: &[Message]) -> Vec<Message> {
    let head = messages.iter().take_while(|message| is_system(message)).count();
    let mut merged: Vec<Message> = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        let mut message = message.clone();
        if is_system(&message) {
            message.role = if index < head { "system" } else { "user" }.into();
        }
        join(&mut merged, message);
    }
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

    #[test]
    fn what_no_form_helps_is_refused_in_the_words_of_the_template() {
        let error = rendered(NO_SYSTEM, &[("assistant", "b"), ("assistant", "c")]).unwrap_err();
        assert_eq!(error, "the model's chat template refuses these messages: roles must alternate");
    }
}
