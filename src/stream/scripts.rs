//! The scripts: what Redis must do in one step. Each call carries a whole batch.

use std::sync::LazyLock;

use redis::Script;

/// Appends entries unless their deduplication key says that they are there. KEYS: stream and deduplication key of each entry.
/// ARGV: time to live, then for each entry the number of field texts and the texts. Atomic per entry: a failed append takes its
/// deduplication key away again, so the next try is not swallowed.
pub(super) static APPEND: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local out, at = {}, 2
for i = 1, #KEYS, 2 do
  local stream, dedup = KEYS[i], KEYS[i + 1]
  local count = tonumber(ARGV[at])
  local known = redis.call('GET', dedup)
  if known then
    out[#out + 1] = {'before', known}
  else
    local id = redis.pcall('XADD', stream, 'NOMKSTREAM', '*', unpack(ARGV, at + 1, at + count))
    if type(id) == 'table' and id.err then
      out[#out + 1] = {'refused', id.err}
    elseif not id then
      out[#out + 1] = {'missing', ''}
    else
      local kept = redis.pcall('SET', dedup, id, 'EX', ARGV[1])
      out[#out + 1] = {'now', id}
    end
  end
  at = at + count + 1
end
return out
",
    )
});

/// Acks and deletes. A deleted entry leaves no hole in the pending list, an acked one no body in the stream.
pub(super) static ACK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, 2))
return redis.call('XDEL', KEYS[1], unpack(ARGV, 2))
",
    )
});

/// Claims one entry for a new consumer if its owner is still the expected one and it has not been handed out since.
pub(super) static TAKE_OVER: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local key, group, id, owner, new, idle = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local row = redis.call('XPENDING', key, group, id, id, 1)[1]
if not row or row[2] ~= owner or row[3] < idle then return false end
return redis.call('XCLAIM', key, group, new, 0, id)
",
    )
});

/// Makes a consumer's entries look idle for a day, so that any reaper takes them at its next pass.
pub(super) static GIVE_UP: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local rows = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', 10000, ARGV[2])
if rows.err then return 0 end
for _, row in ipairs(rows) do
  redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, row[1], 'IDLE', 86400000, 'RETRYCOUNT', math.max(row[4] - 1, 0), 'JUSTID')
end
return #rows
",
    )
});

/// Deletes consumers that hold nothing, have been idle long enough and are not in the list of the living.
pub(super) static DELETE_CONSUMERS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local living = {}
for i = 3, #ARGV do living[ARGV[i]] = true end
local deleted = 0
for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local info = {}
  for i = 1, #row, 2 do info[row[i]] = row[i + 1] end
  if info['pending'] == 0 and info['idle'] >= tonumber(ARGV[2]) and not living[info['name']] then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], info['name'])
    deleted = deleted + 1
  end
end
return deleted
",
    )
});

/// Appends to the results stream while it is there and has room.
pub(super) static SPILL: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1]) then return 'full' end
local id = redis.call('XADD', KEYS[1], 'NOMKSTREAM', '*', unpack(ARGV, 2))
return id or 'missing'
",
    )
});

/// Trims by age on Redis's own clock.
pub(super) static TRIM: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local now = redis.call('TIME')
local oldest = tonumber(now[1]) * 1000 - tonumber(ARGV[1])
return redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f', oldest))
",
    )
});
