//! `src/store/schema.rs` is what the migrations make: generated from the catalogue of a migrated database.
//! Not a check of the code that uses it: the compiler does that.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::harness::database::TestDatabase;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/schema.rs");

const COLUMNS: &str = "
    select c.relname, a.attname, t.typname, case when a.attnotnull then 'some' else 'none' end
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    join pg_type t on t.oid = a.atttypid
    where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace and c.relname not like '\\_\\_diesel%'
    order by c.relname, a.attnum";

const KEYS: &str = "
    select c.relname, string_agg(a.attname, ',' order by k.place)
    from pg_index i
    join pg_class c on c.oid = i.indrelid and c.relnamespace = 'public'::regnamespace
    cross join unnest(i.indkey) with ordinality as k (attnum, place)
    join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
    where i.indisprimary group by c.relname";

const REFERENCES: &str = "
    select child.relname, parent.relname, a.attname
    from pg_constraint f
    join pg_class child on child.oid = f.conrelid
    join pg_class parent on parent.oid = f.confrelid
    join pg_attribute a on a.attrelid = f.conrelid and a.attnum = f.conkey[1]
    where f.contype = 'f' and cardinality(f.conkey) = 1
    order by 1, 2, 3";

const HEADER: &str = "\
//! The tables as diesel sees them. Generated from the migrations; change those, then run
//! `JUDGE_RELAY_UPDATE_SCHEMA=1 cargo test schema_matches_the_migrations`. Not a place for anything written by hand.
";

fn words(row: &str) -> Vec<&str> {
    row.split(' ').collect()
}

fn diesel_type(postgres: &str) -> &str {
    match postgres {
        "text" => "Text",
        "int2" => "Int2",
        "int4" => "Int4",
        "int8" => "Int8",
        "bool" => "Bool",
        "uuid" => "Uuid",
        "bytea" => "Bytea",
        "timestamptz" => "Timestamptz",
        "jsonb" => "Jsonb",
        other => panic!("no diesel type is known for {other}"),
    }
}

fn table(name: &str, key: &str, columns: &[String]) -> String {
    let mut text = format!("\ndiesel::table! {{\n    {name} ({}) {{\n", key.replace(',', ", "));
    for column in columns {
        writeln!(text, "        {column}").expect("a string takes everything");
    }
    text + "    }\n}\n"
}

async fn generated(database: &TestDatabase) -> String {
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in database.rows(COLUMNS).await {
        let [relation, column, sql_type, presence] = words(&row)[..] else { panic!("unexpected: {row}") };
        let known = diesel_type(sql_type);
        let shown = if presence == "some" { known.to_owned() } else { format!("Nullable<{known}>") };
        tables.entry(relation.to_owned()).or_default().push(format!("{column} -> {shown},"));
    }
    let keys = database.rows(KEYS).await;
    let keys: BTreeMap<&str, &str> = keys.iter().filter_map(|row| row.split_once(' ')).collect();
    let mut text = HEADER.to_owned();
    for (name, columns) in &tables {
        text += &table(name, keys[&**name], columns);
    }
    text.push('\n');
    for row in database.rows(REFERENCES).await {
        let [child, parent, column] = words(&row)[..] else { panic!("unexpected: {row}") };
        writeln!(text, "diesel::joinable!({child} -> {parent} ({column}));").expect("a string takes everything");
    }
    text += "\ndiesel::allow_tables_to_appear_in_same_query!(\n";
    for name in tables.keys() {
        writeln!(text, "    {name},").expect("a string takes everything");
    }
    text + ");\n"
}

#[tokio::test]
async fn schema_matches_the_migrations() {
    let generated = generated(&TestDatabase::fresh().await).await;
    if std::env::var_os("JUDGE_RELAY_UPDATE_SCHEMA").is_some() {
        std::fs::write(PATH, &generated).unwrap();
    }
    let written = std::fs::read_to_string(PATH).unwrap();
    assert!(
        written == generated,
        "src/store/schema.rs is not what the migrations make; run \
         JUDGE_RELAY_UPDATE_SCHEMA=1 cargo test schema_matches_the_migrations, or write this:\n{generated}"
    );
}

#[tokio::test]
async fn migrating_again_changes_nothing() {
    let database = TestDatabase::fresh().await;
    let applied = judge_relay::store::migrations::run(&database.stores.database_url).await.unwrap();
    assert_eq!(applied, Vec::<String>::new());
}

#[tokio::test]
async fn replicas_that_migrate_together_do_it_once() {
    let database = TestDatabase::fresh().await;
    database.execute("drop schema public cascade; create schema public").await;
    let url = &database.stores.database_url;
    let (one, other) = tokio::join!(judge_relay::store::migrations::run(url), judge_relay::store::migrations::run(url));
    let mut applied = [one.unwrap().len(), other.unwrap().len()];
    applied.sort_unstable();
    assert_eq!(applied, [0, 1]);
}
