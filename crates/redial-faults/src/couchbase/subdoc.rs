//! Sub-document commands for paths of field names: enough to show a client's requests.

use bytes::Buf;
use serde_json::Value;

use super::frames::Reply;

const INVALID: u16 = 0x04;
const PATH_NOT_FOUND: u16 = 0xc0;
const PATH_EXISTS: u16 = 0xc9;
const NOT_JSON: u16 = 0xc6;
const MULTI_PATH_FAILURE: u16 = 0xcc;
const GET: u8 = 0xc5;
const EXISTS: u8 = 0xc6;
const INSERT: u8 = 0xc7;
const UPSERT: u8 = 0xc8;
const REMOVE: u8 = 0xc9;

fn pointer(path: &str) -> String {
    path.split('.').map(|part| format!("/{part}")).collect()
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

/// Answers a lookup.
pub(super) fn lookup(document: &[u8], mut paths: &[u8]) -> Reply {
    let Ok(json) = serde_json::from_slice::<Value>(document) else {
        return Reply::status(NOT_JSON);
    };
    let mut reply = Reply::default();
    while paths.has_remaining() {
        let (Ok(opcode), Ok(_), Ok(length)) =
            (paths.try_get_u8(), paths.try_get_u8(), paths.try_get_u16())
        else {
            return Reply::status(INVALID);
        };
        let Some(path) = paths.get(..usize::from(length)).and_then(text) else {
            return Reply::status(INVALID);
        };
        paths.advance(usize::from(length));
        let (status, value) = match (opcode, json.pointer(&pointer(&path))) {
            (GET, Some(value)) => (0, value.to_string()),
            (EXISTS, Some(_)) => (0, String::new()),
            (GET | EXISTS, None) => (PATH_NOT_FOUND, String::new()),
            _ => return Reply::status(INVALID),
        };
        if status != 0 {
            reply.status = MULTI_PATH_FAILURE;
        }
        reply.value.extend(status.to_be_bytes());
        reply.value.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
        reply.value.extend(value.into_bytes());
    }
    reply
}

/// Changes a document, or says why not.
pub(super) fn mutate(document: &[u8], mut paths: &[u8]) -> Result<(Vec<u8>, Reply), Reply> {
    let mut json: Value = serde_json::from_slice(document).map_err(|_| Reply::status(NOT_JSON))?;
    let invalid = || Reply::status(INVALID);
    let mut index: u8 = 0;
    while paths.has_remaining() {
        let opcode = paths.try_get_u8().map_err(|_| invalid())?;
        paths.try_get_u8().map_err(|_| invalid())?;
        let path_length = usize::from(paths.try_get_u16().map_err(|_| invalid())?);
        let value_length = paths.try_get_u32().map_err(|_| invalid())? as usize;
        let path = paths.get(..path_length).and_then(text).ok_or_else(invalid)?;
        paths.advance(path_length);
        let value = paths.get(..value_length).ok_or_else(invalid)?;
        let value = serde_json::from_slice::<Value>(value);
        paths.advance(value_length);
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", &path));
        let parent = if parent.is_empty() { String::new() } else { pointer(parent) };
        let fail = |status: u16| {
            let [high, low] = status.to_be_bytes();
            Reply { value: vec![index, high, low], ..Reply::status(MULTI_PATH_FAILURE) }
        };
        let parent = json.pointer_mut(&parent).and_then(Value::as_object_mut);
        let parent = parent.ok_or_else(|| fail(PATH_NOT_FOUND))?;
        match (opcode, value) {
            (INSERT, Ok(_)) if parent.contains_key(name) => return Err(fail(PATH_EXISTS)),
            (INSERT | UPSERT, Ok(value)) => drop(parent.insert(name.to_owned(), value)),
            (REMOVE, _) => {
                parent.remove(name).ok_or_else(|| fail(PATH_NOT_FOUND))?;
            }
            _ => return Err(invalid()),
        }
        index = index.saturating_add(1);
    }
    Ok((json.to_string().into_bytes(), Reply::default()))
}
