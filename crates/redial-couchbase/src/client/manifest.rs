//! The collections of a bucket, as its manifest lists them.

use std::collections::HashMap;

use serde::Deserialize;

use crate::terminal_state::CollectionMap;

/// The ids of collections, by scope and name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manifest {
    uid: u64,
    ids: HashMap<String, HashMap<String, u32>>,
}

#[derive(Deserialize)]
struct Text {
    uid: String,
    scopes: Vec<Scope>,
}

#[derive(Deserialize)]
struct Scope {
    name: String,
    #[serde(default)]
    collections: Vec<Collection>,
}

#[derive(Deserialize)]
struct Collection {
    name: String,
    uid: String,
}

impl Manifest {
    /// Reads a manifest; `None` if it is not one. Ids are hexadecimal texts.
    pub(crate) fn parse(json: &[u8]) -> Option<Self> {
        let Text { uid, scopes } = serde_json::from_slice(json).ok()?;
        let uid = u64::from_str_radix(&uid, 16).ok()?;
        let mut ids = HashMap::new();
        for Scope { name, collections } in scopes {
            let id = |it: Collection| Some((it.name, u32::from_str_radix(&it.uid, 16).ok()?));
            ids.insert(name, collections.into_iter().map(id).collect::<Option<_>>()?);
        }
        Some(Manifest { uid, ids })
    }

    pub(crate) const fn uid(&self) -> u64 {
        self.uid
    }

    pub(crate) fn id(&self, scope: &str, collection: &str) -> Option<u32> {
        self.ids.get(scope)?.get(collection).copied()
    }

    /// The map for the terminal state.
    pub(crate) fn map(&self) -> CollectionMap {
        let add = |map: CollectionMap, (scope, collections): (&String, &HashMap<String, u32>)| {
            map.scope(scope.as_str(), collections.keys().map(String::as_str))
        };
        self.ids.iter().fold(CollectionMap::new(), add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_ids_are_hexadecimal() {
        let text = br#"{"uid": "1f", "scopes": [{"name": "s", "uid": "8",
            "collections": [{"name": "c", "uid": "1a"}]}, {"name": "empty", "uid": "9"}]}"#;
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!((manifest.uid(), manifest.id("s", "c")), (0x1f, Some(0x1a)));
        assert_eq!((manifest.id("s", "d"), manifest.id("t", "c")), (None, None));
        assert!(manifest.map().missing("empty", "c").is_some());
        assert!(manifest.map().missing("s", "c").is_none());
        assert!(Manifest::parse(b"{}").is_none());
        assert!(Manifest::parse(&text.map(|it| if it == b'f' { b'x' } else { it })).is_none());
    }
}
