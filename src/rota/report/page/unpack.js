// A group's packed data: see rota.report.page.chart_data, which packs it.
function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place++) bytes[place] = text.charCodeAt(place);
  return bytes;
}

async function unpacked(base64) {
  const { readable, writable } = new DecompressionStream('deflate');
  const writer = writable.getWriter();
  const written = Promise.all([writer.write(bytesOf(base64)), writer.close()]);
  const [text] = await Promise.all([new Response(readable).text(), written]);
  return decoded(JSON.parse(text));
}

function summed(deltas) {
  const sums = new Float64Array(deltas.length);
  let sum = 0;
  for (let place = 0; place < deltas.length; place++) sums[place] = sum += deltas[place];
  return sums;
}

function decoded(data) {
  const times = summed(data.times);
  const firsts = new Int32Array(data.members.length).fill(times.length);
  const chart = {
    group: data.group,
    begin: data.begin,
    end: data.end,
    topics: data.topics,
    rowTopic: data.row_topics,
    rowPartition: summed(data.row_partitions),
    was: bandsOf(data.was, times, data.end, firsts),
    would: data.would && bandsOf(data.would, times, data.end, firsts),
    rebalances: rebalancesOf(data.rebalances, times, data.words),
    replayed: data.replayed && rebalancesOf(data.replayed, times, data.words),
    lag: data.lag && lagOf(data.lag, data.begin),
    policies: data.policies,
  };
  chart.members = numberedMembers(data.members, firsts);
  return chart;
}

// Bands row after row: those of row r are at places first[r] to first[r + 1]. On the way it is
// found when each member comes first, as a place in the times.
function bandsOf(columns, times, end, firsts) {
  const many = columns.member.length;
  const bands = {
    first: new Uint32Array(columns.bands.length + 1),
    since: new Float64Array(many),
    until: new Float64Array(many),
    open: new Uint8Array(many),
    member: Uint32Array.from(columns.member),
  };
  let place = 0;
  for (let row = 0; row < columns.bands.length; row++) {
    let from = 0;
    for (let left = columns.bands[row]; left > 0; left--, place++) {
      from += columns.gap[place];
      const length = columns.length[place];
      bands.since[place] = times[from];
      if (from < firsts[columns.member[place]]) firsts[columns.member[place]] = from;
      bands.open[place] = length < 0 ? 1 : 0;
      if (length >= 0) from += length;
      bands.until[place] = length < 0 ? end : times[from];
    }
    bands.first[row + 1] = place;
  }
  return bands;
}

const NAMES = ['cause', 'evidence', 'likely', 'reason', 'strategy', 'rollout'];

function rebalancesOf(columns, times, words) {
  const found = { ...columns, at: summed(columns.at).map((place) => times[place]) };
  for (const name of NAMES.filter((name) => columns[name])) {
    found[name] = columns[name].map((place) => (place < 0 ? null : words[place]));
  }
  return found;
}

// In a run of buckets lag in seconds rises as time passes, up to the last; null: it is not known.
// A run's amounts are all "at least", or none is.
function lagOf({ step, in_seconds: inSeconds, run_lengths: lengths, run_ends: lasts, at_least: floors }, begin) {
  const times = [];
  const amounts = [];
  const atLeast = [];
  const rise = inSeconds ? step / 1000 : 0;
  let bucket = 0;
  lengths.forEach((length, run) => {
    for (let left = length - 1; left >= 0; left--, bucket++) {
      if (lasts[run] === null) continue;
      times.push(begin + bucket * step);
      amounts.push(Math.max(lasts[run] - left * rise, 0));
      atLeast.push(Boolean(floors[run]));
    }
  });
  return { at: times, step, inSeconds, amounts, atLeast };
}

// Members are numbered as they come, so that those of one time have different colours. A static
// member is one however often it comes back with another id; replayed bands know only the id.
function numberedMembers(listed, firsts) {
  const fixedOf = new Map(listed.filter((one) => one[3] !== null).map((one) => [one[0], one[3]]));
  const members = listed.map(([id, client, host]) => {
    const fixed = fixedOf.has(id) ? fixedOf.get(id) : null;
    return { id, client, host, fixed, key: fixed === null ? `m${id}` : `s${fixed}` };
  });
  const known = new Map();
  members.forEach(({ key }, place) => {
    known.set(key, Math.min(known.has(key) ? known.get(key) : Infinity, firsts[place]));
  });
  const clients = new Map(members.map((member) => [member.key, member.client]));
  const ranked = [...known].sort(([one, first], [other, second]) => (
    first - second || (clients.get(one) < clients.get(other) ? -1 : 1)));
  const ranks = new Map(ranked.map(([key], rank) => [key, rank]));
  for (const member of members) member.rank = ranks.get(member.key);
  return members;
}
