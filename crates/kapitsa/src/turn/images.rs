//! Images for a model that sees none.

use serde_json::{Value, json};

use super::TurnRequest;

/// What stands for an image that a tool has read.
const NOTE: &str = "[an image: this model sees no images]";

impl TurnRequest {
    /// Puts a note in the place of each image that a tool has read: the model can say that it does not see it, and the conversation
    /// goes on. Some clients send such an image as a message of the user after the tool's. Other images stay.
    pub fn note_tool_images(&mut self) {
        let mut after_tool = false;
        let mut images = std::mem::take(&mut self.images).into_iter();
        for message in &mut self.messages {
            let is_tool = message.role == "tool" || (after_tool && message.role == "user");
            let Value::Array(parts) = &mut message.content else {
                after_tool = message.role == "tool";
                continue;
            };
            for part in parts.iter_mut().filter(|part| part["type"] == "image") {
                if is_tool {
                    images.next();
                    *part = json!({"type": "text", "text": NOTE});
                } else {
                    self.images.extend(images.next());
                }
            }
            after_tool = message.role == "tool";
        }
        self.images.extend(images);
    }
}

#[cfg(test)]
mod tests {
    use kapitsa_text::Message;
    use serde_json::Map;

    use super::super::{ImageData, ImageSource};
    use super::*;

    #[test]
    fn only_what_tools_have_read_is_noted() {
        let message = |role: &str, content: Value| Message { role: role.into(), content, fields: Map::new() };
        let image = || json!({"type": "image"});
        let mut request = TurnRequest {
            messages: vec![
                message("user", json!([image()])),
                message("tool", json!([{"type": "text", "text": "read:"}, image()])),
                message("tool", json!("text")),
                message("user", json!([image(), image()])),
                message("user", json!([image()])),
            ],
            images: (0..5).map(|n| ImageSource { place: n.to_string(), data: ImageData::Url(String::new()) }).collect(),
            ..TurnRequest::default()
        };
        request.note_tool_images();
        let places: Vec<_> = request.images.iter().map(|image| image.place.as_str()).collect();
        assert_eq!(places, ["0", "4"]);
        let note = json!({"type": "text", "text": NOTE});
        assert_eq!(request.messages[1].content[1], note);
        assert_eq!(request.messages[3].content, json!([note, note]));
        assert_eq!((&request.messages[0].content[0], &request.messages[4].content[0]), (&image(), &image()));
    }
}
