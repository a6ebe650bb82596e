//! Our values in PostgreSQL's binary form.

use crate::core::lsn::Lsn;
use crate::core::time::PgInstant;
use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, PgLsn, ToSql, Type, to_sql_checked};

type Failure = Box<dyn std::error::Error + Sync + Send>;

/// An instant in the representation of the server, including the infinities.
#[derive(Debug, Clone, Copy)]
pub struct Instant(pub PgInstant);

impl ToSql for Instant {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Failure> {
        out.put_i64(self.0.as_pg_micros());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Instant {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Failure> {
        Ok(Self(PgInstant::from_pg_micros(i64::from_be_bytes(raw.try_into()?))))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

/// Text that need not be UTF-8: a SQL_ASCII database returns the bytes that were stored.
pub struct Text(pub String);

impl<'a> FromSql<'a> for Text {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Failure> {
        Ok(Self(crate::core::row::text_of(raw)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TEXT
    }
}

#[must_use]
pub fn to_pg(lsn: Lsn) -> PgLsn {
    PgLsn::from(u64::from(lsn))
}

#[must_use]
pub fn from_pg(lsn: PgLsn) -> Lsn {
    Lsn::from(u64::from(lsn))
}
