//! The documentation comments and attributes of an item in a crate's sources.

use std::io;
use std::path::Path;

use crate::names;

/// The lines above the item whose line starts with `item`, up to the item before it, on one line; empty if no
/// source file in the folder has the item.
///
/// # Errors
/// If a file cannot be read.
pub fn of(folder: &Path, item: &str) -> io::Result<String> {
    let mut found = String::new();
    names::visit(folder, "rs", &mut |source| {
        if found.is_empty() {
            found = above(source, item);
        }
        Ok(())
    })?;
    Ok(found)
}

fn above(source: &str, item: &str) -> String {
    let lines: Vec<_> = source.lines().collect();
    let is_item = |line: &&str| {
        line.strip_prefix(item).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    let Some(at) = lines.iter().position(is_item) else { return String::new() };
    let belongs = |line: &&&str| line.starts_with("///") || line.starts_with("#[");
    let above: Vec<_> = lines[..at].iter().rev().take_while(belongs).collect();
    let words =
        above.iter().rev().flat_map(|line| line.trim_start_matches("///").split_whitespace());
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_docs_end_at_the_item_before() {
        let source = "/// One.\npub struct One;\n\n/// Two,\n/// in two lines.\n#[derive(Debug)]\npub struct Two {\n";
        assert_eq!(above(source, "pub struct Two"), "Two, in two lines. #[derive(Debug)]");
        assert_eq!(above(source, "pub struct One"), "One.");
        assert_eq!(above(source, "pub struct T"), "");
    }
}
