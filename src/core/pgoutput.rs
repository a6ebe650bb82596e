//! Decodes the messages of the `pgoutput` plugin, protocol version 1.
//!
//! The decoder is total: any bytes give a change or an error, never a panic. No count in a message makes it reserve
//! more than the rest of that message could fill. Values are slices of the message, not copies. Messages that carry
//! nothing for us are still read to their end, so that a stream out of step is noticed at the first message and not at
//! the first strange row.

use bytes::Bytes;
use std::fmt;

/// One message of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Relation(Relation),
    Insert { relation: u32, new: Tuple },
    Update { relation: u32 },
    Delete { relation: u32 },
    Truncate { relations: Vec<u32> },
    Type,
    Origin,
    Begin,
    Commit,
    Message,
}

/// The description of a table. The server sends it before the first row and again after each change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    pub id: u32,
    pub namespace: String,
    pub name: String,
    pub replica_identity: u8,
    pub columns: Vec<RelationColumn>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationColumn {
    /// Bit 0: the column is part of the replica identity.
    pub flags: u8,
    pub name: String,
    pub type_oid: u32,
    pub type_modifier: i32,
}

/// The values of a row, in the order of the relation's columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuple(pub Vec<Datum>);

#[derive(Clone, PartialEq, Eq)]
pub enum Datum {
    Null,
    /// A TOASTed value that the change did not touch, so the server did not send it.
    Unchanged,
    Text(Bytes),
    Binary(Bytes),
}

/// Prints sizes only: the values of a row must not appear in logs, and `{:?}` would put them there.
impl fmt::Debug for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Datum::Null => f.write_str("Null"),
            Datum::Unchanged => f.write_str("Unchanged"),
            Datum::Text(value) => write!(f, "Text({} bytes)", value.len()),
            Datum::Binary(value) => write!(f, "Binary({} bytes)", value.len()),
        }
    }
}

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("message ends early: expected {wanted} more bytes, found {left}")]
    Truncated { wanted: usize, left: usize },
    #[error("unknown message tag {0:#04x}")]
    UnknownTag(u8),
    #[error("unknown kind of tuple {0:#04x}")]
    UnknownTuple(u8),
    #[error("unknown kind of value {0:#04x}")]
    UnknownDatum(u8),
    #[error("message goes on for {0} bytes after its end")]
    TrailingBytes(usize),
}

type Result<T> = std::result::Result<T, DecodeError>;

/// Decodes one whole message.
pub fn decode(bytes: &Bytes) -> Result<Change> {
    let mut reader = MessageReader(bytes.clone());
    let change = reader.change()?;
    match reader.0.len() {
        0 => Ok(change),
        left => Err(DecodeError::TrailingBytes(left)),
    }
}

/// What is left of a message.
struct MessageReader(Bytes);

impl MessageReader {
    fn change(&mut self) -> Result<Change> {
        match self.u8()? {
            b'R' => self.relation().map(Change::Relation),
            b'I' => self.insert(),
            b'U' => self.update(),
            b'D' => self.delete(),
            b'T' => self.truncate(),
            b'Y' => self.skip_type(),
            b'O' => self.skip_origin(),
            // Final LSN, commit time, xid.
            b'B' => self.take(8 + 8 + 4).map(|_| Change::Begin),
            // Flags, commit LSN, end LSN, commit time.
            b'C' => self.take(1 + 8 + 8 + 8).map(|_| Change::Commit),
            b'M' => self.skip_message(),
            tag => Err(DecodeError::UnknownTag(tag)),
        }
    }

    fn relation(&mut self) -> Result<Relation> {
        let id = self.u32()?;
        let namespace = self.string()?;
        // The server sends an empty name for `pg_catalog`.
        let namespace = if namespace.is_empty() { "pg_catalog".to_owned() } else { namespace };
        let name = self.string()?;
        let replica_identity = self.u8()?;
        let count = self.u16()?.into();
        // Flags, an empty name's terminator, type and modifier: no column is shorter.
        let columns = self.repeat(count, 1 + 1 + 4 + 4, Self::column)?;
        Ok(Relation { id, namespace, name, replica_identity, columns })
    }

    fn column(&mut self) -> Result<RelationColumn> {
        let flags = self.u8()?;
        let name = self.string()?;
        let type_oid = self.u32()?;
        let type_modifier = i32::from_be_bytes(self.array()?);
        Ok(RelationColumn { flags, name, type_oid, type_modifier })
    }

    fn insert(&mut self) -> Result<Change> {
        let relation = self.u32()?;
        match self.u8()? {
            b'N' => Ok(Change::Insert { relation, new: self.tuple()? }),
            kind => Err(DecodeError::UnknownTuple(kind)),
        }
    }

    fn update(&mut self) -> Result<Change> {
        let relation = self.u32()?;
        let mut kind = self.u8()?;
        if matches!(kind, b'K' | b'O') {
            self.tuple()?;
            kind = self.u8()?;
        }
        match kind {
            b'N' => self.tuple().map(|_| Change::Update { relation }),
            kind => Err(DecodeError::UnknownTuple(kind)),
        }
    }

    fn delete(&mut self) -> Result<Change> {
        let relation = self.u32()?;
        match self.u8()? {
            b'K' | b'O' => self.tuple().map(|_| Change::Delete { relation }),
            kind => Err(DecodeError::UnknownTuple(kind)),
        }
    }

    fn truncate(&mut self) -> Result<Change> {
        let count = self.u32()? as usize;
        let _cascade_and_restart = self.u8()?;
        Ok(Change::Truncate { relations: self.repeat(count, 4, Self::u32)? })
    }

    fn skip_type(&mut self) -> Result<Change> {
        let _oid = self.u32()?;
        let (_namespace, _name) = (self.terminated()?, self.terminated()?);
        Ok(Change::Type)
    }

    fn skip_origin(&mut self) -> Result<Change> {
        let _commit_lsn = self.take(8)?;
        let _name = self.terminated()?;
        Ok(Change::Origin)
    }

    fn skip_message(&mut self) -> Result<Change> {
        let _flags_and_lsn = self.take(1 + 8)?;
        let _prefix = self.terminated()?;
        let _content = self.sized()?;
        Ok(Change::Message)
    }

    fn tuple(&mut self) -> Result<Tuple> {
        let count = self.u16()?.into();
        self.repeat(count, 1, Self::datum).map(Tuple)
    }

    fn datum(&mut self) -> Result<Datum> {
        match self.u8()? {
            b'n' => Ok(Datum::Null),
            b'u' => Ok(Datum::Unchanged),
            b't' => self.sized().map(Datum::Text),
            b'b' => self.sized().map(Datum::Binary),
            kind => Err(DecodeError::UnknownDatum(kind)),
        }
    }

    /// Reads `count` items, each at least `least` bytes long. If the message cannot hold that many, nothing is reserved
    /// for them, and reading fails where the bytes end.
    fn repeat<T>(
        &mut self,
        count: usize,
        least: usize,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::with_capacity(count.min(self.0.len() / least));
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn take(&mut self, wanted: usize) -> Result<Bytes> {
        let left = self.0.len();
        if wanted > left {
            return Err(DecodeError::Truncated { wanted, left });
        }
        Ok(self.0.split_to(wanted))
    }

    /// A length, and that many bytes. The length is signed on the wire. Read as unsigned, a negative length is more
    /// than any message holds.
    fn sized(&mut self) -> Result<Bytes> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    /// The bytes before the next NUL, which is consumed too.
    fn terminated(&mut self) -> Result<Bytes> {
        let left = self.0.len();
        let end = self.0.iter().position(|byte| *byte == 0);
        let length = end.ok_or(DecodeError::Truncated { wanted: left + 1, left })?;
        let text = self.take(length)?;
        self.take(1)?;
        Ok(text)
    }

    /// A name. A name in another encoding is made readable and not rejected. An unknown relation is ignored anyway, and
    /// an error would stop the stream.
    fn string(&mut self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.terminated()?).into_owned())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(&self.take(N)?);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }
}

#[cfg(test)]
pub(crate) mod encode;
#[cfg(test)]
mod tests;
