//! "Did you mean": finds the known name that is closest to a mistyped one.

/// Names longer than this are not compared: they are unlikely to be typos, and comparing is quadratic.
const LENGTH_MAX: usize = 64;

/// The known name closest to this one, if they differ in case, separators or at most a third of the
/// letters.
pub(super) fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if name.is_empty() || name.len() > LENGTH_MAX {
        return None;
    }
    let plain = |name: &str| -> String {
        let letters = name.chars().filter(|letter| !['_', '-', ' '].contains(letter));
        letters.flat_map(char::to_lowercase).collect()
    };
    let wanted = plain(name);
    known
        .into_iter()
        .map(|known| (strsim::osa_distance(&wanted, &plain(known)), known))
        .filter(|(distance, known)| distance * 3 <= known.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

pub(super) fn did_you_mean(name: &str) -> String {
    format!("did you mean {name:?}?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestion_finds_mistyped_names_only() {
        let known = ["maxAttempts", "initialBackoff", "maxBackoff", "UNAVAILABLE", "OK"];
        let nearest = |name: &str| nearest(name, known);
        assert_eq!(nearest("maxAttempt"), Some("maxAttempts"));
        assert_eq!(nearest("max_attempts"), Some("maxAttempts"));
        assert_eq!(nearest("MaxBackOff"), Some("maxBackoff"));
        assert_eq!(nearest("UNAVAILABEL"), Some("UNAVAILABLE"));
        assert_eq!(nearest("healthCheckConfig"), None);
        assert_eq!(nearest(""), None);
        assert_eq!(nearest("KO"), None, "in a name of two letters none may differ");
        assert_eq!(nearest(&"maxAttempts".repeat(100)), None);
    }
}
