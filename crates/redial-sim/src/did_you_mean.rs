//! "Did you mean" suggestions.

/// The closest name, or the list of all.
pub(crate) fn known(name: &str, names: &[&str]) -> String {
    let closest = names
        .iter()
        .map(|other| (strsim::damerau_levenshtein(name, other), other))
        .filter(|(distance, other)| *distance <= 2.max(other.len() / 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other);
    // A part of a name, such as "timeout" of "attempt_timeout".
    let whole =
        || names.iter().find(|other| name.len() > 3 && other.split('_').any(|it| it == name));
    match closest.or_else(whole) {
        Some(other) => format!("did you mean {other:?}?"),
        None => {
            let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
            format!("write one of {}", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::known;

    #[test]
    fn suggestion_is_the_closest_name_or_the_list() {
        assert_eq!(known("durration", &["duration", "seed"]), "did you mean \"duration\"?");
        let keys = ["attempts", "attempt_timeout", "hint_max"];
        assert_eq!(known("timeout", &keys), "did you mean \"attempt_timeout\"?");
        assert!(known("max", &keys).starts_with("write one of"));
        assert_eq!(known("xyz", &["duration", "seed"]), "write one of \"duration\", \"seed\"");
    }
}
