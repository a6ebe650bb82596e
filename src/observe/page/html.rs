//! A writer of HTML that escapes: a text becomes part of a page only through it, and `raw` takes nothing but words of this program.

/// A piece of a page, escaped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Html(String);

impl Html {
    /// What stands in this program's own source: a style, a script, a drawing.
    #[must_use]
    pub fn raw(own: &'static str) -> Self {
        Self(own.to_owned())
    }

    #[must_use]
    pub fn and(mut self, more: impl Into<Self>) -> Self {
        self.0.push_str(&more.into().0);
        self
    }

    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

/// Pieces one after the other.
pub fn all(pieces: impl IntoIterator<Item = impl Into<Html>>) -> Html {
    pieces.into_iter().fold(Html::default(), Html::and)
}

impl From<&str> for Html {
    fn from(text: &str) -> Self {
        Self(escaped(text))
    }
}

impl From<String> for Html {
    fn from(text: String) -> Self {
        Self(escaped(&text))
    }
}

impl From<&String> for Html {
    fn from(text: &String) -> Self {
        Self(escaped(text))
    }
}

impl<T: Into<Html>> From<Option<T>> for Html {
    fn from(piece: Option<T>) -> Self {
        piece.map_or_else(Self::default, Into::into)
    }
}

impl From<Tag> for Html {
    fn from(tag: Tag) -> Self {
        let Tag { name, attributes, inside } = tag;
        if ["meta", "link"].contains(&name) {
            return Self(format!("<{name}{attributes}>"));
        }
        Self(format!("<{name}{attributes}>{}</{name}>", inside.0))
    }
}

/// An element. Names of elements and attributes are words of this program.
#[derive(Debug)]
pub struct Tag {
    name: &'static str,
    attributes: String,
    inside: Html,
}

#[must_use]
pub fn tag(name: &'static str) -> Tag {
    Tag { name, attributes: String::new(), inside: Html::default() }
}

impl Tag {
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl AsRef<str>) -> Self {
        self.attributes += &format!(" {name}=\"{}\"", escaped(value.as_ref()));
        self
    }

    /// An attribute that is there or not.
    #[must_use]
    pub fn flag(mut self, name: &'static str, there: bool) -> Self {
        if there {
            self.attributes += &format!(" {name}");
        }
        self
    }

    #[must_use]
    pub fn class(self, names: impl AsRef<str>) -> Self {
        self.with("class", names)
    }

    #[must_use]
    pub fn id(self, id: impl AsRef<str>) -> Self {
        self.with("id", id)
    }

    #[must_use]
    pub fn put(mut self, piece: impl Into<Html>) -> Self {
        self.inside = self.inside.and(piece);
        self
    }
}

/// Safe inside an element and inside a quoted attribute. Characters that steer a terminal or the direction of text, and those that
/// HTML forbids, become a sign that is seen.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_and_attributes_are_escaped_and_elements_are_closed() {
        let piece = tag("p")
            .class("a\"b")
            .put("<script>alert('x')</script>")
            .put(tag("b").put("&").flag("hidden", true));
        assert_eq!(
            Html::from(piece).into_string(),
            "<p class=\"a&quot;b\">&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;<b hidden>&amp;</b></p>"
        );
        assert_eq!(
            Html::from(tag("meta").with("charset", "utf-8")).into_string(),
            "<meta charset=\"utf-8\">"
        );
        assert_eq!(all(["a", "<"]).and(None::<&str>).into_string(), "a&lt;");
        assert_eq!(Html::from("a\u{202e}b\0\u{1b}[2J").into_string(), "a\u{fffd}b\u{fffd}\u{fffd}[2J");
    }

    proptest! {
        #[test]
        fn no_text_leaves_its_place(text in ".*") {
            let piece = Html::from(tag("i").with("title", &text).put(&text)).into_string();
            let signs = |c| piece.matches(c).count();
            prop_assert_eq!((signs('<'), signs('>'), signs('"'), signs('\'')), (2, 2, 2, 0));
        }
    }
}
