//! The list of models.

use serde_json::{Value, json};

/// A list of models by their ids, all there since so many seconds after 1970.
pub(crate) fn list(ids: &[&str], created: u64) -> Value {
    json!({
        "data": ids.iter().map(|id| one(id, created)).collect::<Vec<_>>(),
        "has_more": false,
        "first_id": ids.first(),
        "last_id": ids.last(),
    })
}

/// One model.
pub(crate) fn one(id: &str, created: u64) -> Value {
    json!({ "type": "model", "id": id, "display_name": id, "created_at": rfc_3339(created) })
}

fn rfc_3339(seconds: u64) -> String {
    let (mut days, time) = (seconds / 86400, seconds % 86400);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // 400 years have 146097 days; the rest is counted.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}T{:02}:{:02}:{:02}Z", days + 1, time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_the_form_of_the_api() {
        let model = |id| json!({ "type": "model", "id": id, "display_name": id, "created_at": "2026-11-30T09:28:17Z" });
        let expected = json!({
            "data": [model("qwen3"), model("claude-local")], "has_more": false,
            "first_id": "qwen3", "last_id": "claude-local",
        });
        assert_eq!(list(&["qwen3", "claude-local"], 1_796_030_897), expected);
        assert_eq!(list(&[], 0), json!({ "data": [], "has_more": false, "first_id": null, "last_id": null }));
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (68_169_600, "1972-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(rfc_3339(seconds), expected);
        }
        // However far away.
        rfc_3339(u64::MAX);
    }
}
