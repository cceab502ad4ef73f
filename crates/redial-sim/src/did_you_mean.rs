//! "Did you mean" suggestions.

/// The closest name, or the list of all.
pub(crate) fn known(name: &str, names: &[&str]) -> String {
    let closest = names
        .iter()
        .map(|other| (strsim::damerau_levenshtein(name, other), other))
        .filter(|(distance, other)| *distance <= 2.max(other.len() / 3))
        .min_by_key(|(distance, _)| *distance);
    match closest {
        Some((_, other)) => format!("did you mean {other:?}?"),
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
        assert_eq!(known("xyz", &["duration", "seed"]), "write one of \"duration\", \"seed\"");
    }
}
