//! A decoded answer, and the status inside it.
//!
//! Milvus reports most errors inside the message of an OK response: in a `common.Status`, which is
//! the message itself or one of its fields. This reads its code from the protobuf encoding, so that
//! no generated code of a certain version is needed.

/// The length of the prefix of a gRPC message: a flag and four bytes of length.
const PREFIX_BYTES: usize = 5;

/// The answer of an attempt, for a predicate over its message.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    method: &'a str,
    body: &'a [u8],
}

impl<'a> Answer<'a> {
    pub(super) fn new(method: &'a str, body: &'a [u8]) -> Self {
        Answer { method, body }
    }

    /// The name of the method: `Search`.
    #[must_use]
    pub fn method(&self) -> &'a str {
        self.method
    }

    /// The encoded message, for `Message::decode` of the generated code. `None` if there is not
    /// exactly one message, or if it is compressed.
    #[must_use]
    pub fn message(&self) -> Option<&'a [u8]> {
        let (prefix, message) = self.body.split_at_checked(PREFIX_BYTES)?;
        let [flag, length @ ..] = prefix else { return None };
        let length = u32::from_be_bytes(length.try_into().ok()?);
        (*flag == 0 && usize::try_from(length).ok()? == message.len()).then_some(message)
    }

    /// The code of the status inside the message: 0 is success, [`RATE_LIMIT`](crate::RATE_LIMIT) a
    /// rate limit. `None` if the message has no status.
    #[must_use]
    pub fn status_code(&self) -> Option<i32> {
        let message = self.message()?;
        let field = match self.method {
            "Dummy" | "GetReplicateInfo" => return None,
            "RegisterLink" => 2,
            "GetComponentStates" => 3,
            _ => 1,
        };
        let status = Fields(message).find_map(|(number, value)| match value {
            Value::Bytes(status) if number == field => Some(status),
            _ => None,
        });
        code_of(status.unwrap_or(message))
    }
}

/// The field `code` of a `common.Status`; 0 if it is absent. `None` if it is another message.
fn code_of(status: &[u8]) -> Option<i32> {
    let mut code = 0;
    let mut fields = Fields(status);
    for (number, value) in &mut fields {
        match (number, value) {
            // int32 on the wire: 64 bits, of which the lower 32 count.
            (3, Value::Number(number)) => code = number as i32,
            // error_code, retriable; reason, detail, extra_info; fields of a newer server.
            (1 | 4, Value::Number(_)) | (2 | 5 | 6, Value::Bytes(_)) | (7.., _) => {}
            _ => return None,
        }
    }
    fields.0.is_empty().then_some(code)
}

/// A field's value.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of an encoded message; ends at the first error.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for (index, byte) in self.0.iter().take(10).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.0 = &self.0[index + 1..];
                return Some(number);
            }
        }
        None
    }

    fn bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Bytes(self.bytes(8)?),
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.bytes(length)?)
            }
            5 => Value::Bytes(self.bytes(4)?),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let before = self.0;
        let field = self.field();
        if field.is_none() {
            // A broken message is not empty.
            self.0 = before;
        }
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(message: &[u8]) -> Vec<u8> {
        let mut body = vec![0];
        body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        body.extend(message);
        body
    }

    fn code(method: &str, message: &[u8]) -> Option<i32> {
        Answer::new(method, &body(message)).status_code()
    }

    #[test]
    fn answer_status_code_is_read_from_field_or_message() {
        // Status { code: 8 }, and with error_code, reason, retriable.
        let status = [0x18, 8];
        let long = [0x08, 49, 0x12, 2, b'n', b'o', 0x18, 8, 0x20, 1];
        for status in [&status[..], &long] {
            assert_eq!(code("CreateCollection", status), Some(8));
            let mut field = vec![0x0a, u8::try_from(status.len()).unwrap()];
            field.extend(status);
            // A field behind it: value = true.
            field.extend([0x10, 1]);
            assert_eq!(code("HasCollection", &field), Some(8));
            field[0] = 0x1a;
            assert_eq!(code("GetComponentStates", &field), Some(8));
            assert_eq!(code("Dummy", &field), None);
        }
        // An empty Status inside the message, and an empty message: success.
        assert_eq!(code("Search", &[0x0a, 0]), Some(0));
        assert_eq!(code("CreateCollection", &[]), Some(0));
        // -1: ten bytes.
        let minus = [0x18, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        assert_eq!(code("CreateCollection", &minus), Some(-1));
    }

    #[test]
    fn answer_without_a_status_has_no_code() {
        // GetIndexBuildProgressResponse { indexed_rows: 1, total_rows: 8 } without a status.
        assert_eq!(code("GetIndexBuildProgress", &[0x10, 1, 0x18, 8]), None);
        // Truncated.
        assert_eq!(code("CreateCollection", &[0x18]), None);
        assert_eq!(code("Search", &[0x0a, 5, 0x18, 8]), None);
        assert_eq!(code("Search", &[0x0b]), None);
    }

    #[test]
    fn answer_message_must_be_whole_single_and_plain() {
        let whole = body(&[0x18, 8]);
        assert_eq!(Answer::new("Search", &whole).message(), Some(&[0x18, 8][..]));
        let mut compressed = whole.clone();
        compressed[0] = 1;
        let twice = [whole.clone(), whole.clone()].concat();
        for broken in [&whole[..6], &whole[..4], &[], &compressed, &twice] {
            assert_eq!(Answer::new("Search", broken).message(), None, "{broken:?}");
        }
    }
}
