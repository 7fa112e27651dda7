//! Hand-written SQL with typed binds and rows, whose prepared statement is cached by its text.
//!
//! diesel caches SELECTs of its own builder but neither `sql_query` nor set-based UPDATEs, which then pay an extra parse and
//! plan at every call. This is not a query builder: the text is sent as it stands.

use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::{HasSqlType, Untyped};
use std::marker::PhantomData;

/// SQL text, the values of its `$1 …` and the types of its rows.
pub struct Statement<Row, Binds> {
    sql: &'static str,
    binds: Binds,
    row: PhantomData<fn() -> Row>,
}

/// No value yet.
pub struct NoBinds;

/// One more value, of SQL type `Type`.
pub struct Bound<Before, Type, Value> {
    before: Before,
    value: Value,
    sql_type: PhantomData<fn() -> Type>,
}

/// A statement that returns rows of the SQL types `Row` (a tuple, or one type).
pub fn statement<Row>(sql: &'static str) -> Statement<Row, NoBinds> {
    Statement { sql, binds: NoBinds, row: PhantomData }
}

/// A statement whose rows nobody reads.
pub fn command(sql: &'static str) -> Statement<Untyped, NoBinds> {
    statement(sql)
}

impl<Row, Binds> Statement<Row, Binds> {
    /// Binds the next `$n`.
    pub fn bind<Type, Value>(self, value: Value) -> Statement<Row, Bound<Binds, Type, Value>> {
        let binds = Bound { before: self.binds, value, sql_type: PhantomData };
        Statement { sql: self.sql, binds, row: PhantomData }
    }
}

impl<Row, Binds> QueryId for Statement<Row, Binds> {
    type QueryId = ();
    // Cached by its text instead of by its type.
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Row, Binds> Query for Statement<Row, Binds> {
    type SqlType = Row;
}

impl<Row, Binds: PushBinds> QueryFragment<Pg> for Statement<Row, Binds> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(self.sql);
        self.binds.push(out)
    }
}

impl<Row, Binds, Conn> diesel::RunQueryDsl<Conn> for Statement<Row, Binds> {}

/// Hands the values over in the order of their `$n`.
pub trait PushBinds {
    /// Pushes every value, the first bound first.
    fn push<'b>(&'b self, out: AstPass<'_, 'b, Pg>) -> QueryResult<()>;
}

impl PushBinds for NoBinds {
    fn push<'b>(&'b self, _: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        Ok(())
    }
}

impl<Before: PushBinds, Type, Value> PushBinds for Bound<Before, Type, Value>
where
    Value: ToSql<Type, Pg>,
    Pg: HasSqlType<Type>,
{
    fn push<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        self.before.push(out.reborrow())?;
        out.push_bind_param_value_only(&self.value)
    }
}
