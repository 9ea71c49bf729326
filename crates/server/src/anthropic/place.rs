//! Values of a request, each with its place, so that an error can name it.

use serde_json::Value;

use crate::error::{ApiError, shown};

/// A value and where it stands, such as `messages[3].content[0].text`; the body's place is empty.
pub(super) struct Placed<'a> {
    pub(super) value: &'a Value,
    pub(super) place: String,
}

impl<'a> Placed<'a> {
    /// The body of a request.
    pub(super) fn body(value: &'a Value) -> Result<Self, ApiError> {
        Placed { value, place: String::new() }.object()
    }

    /// A field of an object; null is as good as absent.
    pub(super) fn field(&self, name: &str) -> Option<Placed<'a>> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        Some(Placed { value, place: self.inner(name) })
    }

    pub(super) fn required(&self, name: &str) -> Result<Placed<'a>, ApiError> {
        self.field(name).ok_or_else(|| ApiError::place(&self.inner(name), "is missing"))
    }

    /// A field that may be absent, read.
    pub(super) fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(Placed<'a>) -> Result<T, ApiError>,
    ) -> Result<Option<T>, ApiError> {
        self.field(name).map(read).transpose()
    }

    fn inner(&self, name: &str) -> String {
        match self.place.as_str() {
            "" => name.to_owned(),
            place => format!("{place}.{name}"),
        }
    }

    pub(super) fn items(&self) -> Result<impl Iterator<Item = Placed<'a>>, ApiError> {
        let items = self.value.as_array().ok_or_else(|| self.expected("a list"))?.iter().enumerate();
        Ok(items.map(|(index, value)| Placed { value, place: format!("{}[{index}]", self.place) }))
    }

    /// Itself, if it is an object.
    pub(super) fn object(self) -> Result<Self, ApiError> {
        if self.value.is_object() { Ok(self) } else { Err(self.expected("an object")) }
    }

    /// An object and its field `type`.
    pub(super) fn kind(self) -> Result<(&'a str, Self), ApiError> {
        let this = self.object()?;
        Ok((this.required("type")?.text()?, this))
    }

    pub(super) fn text(self) -> Result<&'a str, ApiError> {
        self.value.as_str().ok_or_else(|| self.expected("text"))
    }

    pub(super) fn flag(self) -> Result<bool, ApiError> {
        self.value.as_bool().ok_or_else(|| self.expected("true or false"))
    }

    pub(super) fn number(self) -> Result<f64, ApiError> {
        self.value.as_f64().ok_or_else(|| self.expected("a number"))
    }

    /// A whole number of at least so much.
    pub(super) fn count(self, least: u64) -> Result<usize, ApiError> {
        let count = self.value.as_u64().filter(|&count| count >= least);
        let count = count.ok_or_else(|| self.expected(&format!("a whole number of at least {least}")))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// It is not what it has to be.
    pub(super) fn expected(&self, what: &str) -> ApiError {
        let found = shown(self.value);
        match self.place.as_str() {
            "" => ApiError::invalid(format!("the body is {found}, expected {what}")),
            place => ApiError::place(place, format!("is {found}, expected {what}")),
        }
    }
}
