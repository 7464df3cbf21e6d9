// Unpacks a group's data, which rota.report.page.chart_data packs.
function decodeBase64(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) bytes[index] = text.charCodeAt(index);
  return bytes;
}

async function unpackChart(base64) {
  const { readable, writable } = new DecompressionStream('deflate');
  const writer = writable.getWriter();
  const written = Promise.all([writer.write(decodeBase64(base64)), writer.close()]);
  const [text] = await Promise.all([new Response(readable).text(), written]);
  return decodeChart(JSON.parse(text));
}

function cumulativeSums(deltas) {
  const sums = new Float64Array(deltas.length);
  let sum = 0;
  for (let index = 0; index < deltas.length; index++) sums[index] = sum += deltas[index];
  return sums;
}

function decodeChart(data) {
  const times = cumulativeSums(data.times);
  const firstTimes = new Int32Array(data.members.length).fill(times.length);
  const chart = {
    group: data.group,
    begin: data.begin,
    end: data.end,
    topics: data.topics,
    rowTopic: data.row_topics,
    rowPartition: cumulativeSums(data.row_partitions),
    actualBands: decodeBands(data.ownership, times, data.end, firstTimes),
    replayedBands: data.advised_ownership
      && decodeBands(data.advised_ownership, times, data.end, firstTimes),
    rebalances: decodeRebalances(data.rebalances, times, data.words),
    replayed: data.replayed && decodeRebalances(data.replayed, times, data.words),
    lag: data.lag && decodeLag(data.lag, data.begin),
    policies: data.policies,
  };
  chart.members = rankMembers(data.members, firstTimes);
  return chart;
}

// Decodes the bands, row after row: the bands of row r have the indexes first[r] to first[r + 1].
// Also sets in firstTimes the index of the first time of each member.
function decodeBands(columns, times, end, firstTimes) {
  const count = columns.member.length;
  const bands = {
    first: new Uint32Array(columns.bands.length + 1),
    since: new Float64Array(count),
    until: new Float64Array(count),
    open: new Uint8Array(count),
    member: Uint32Array.from(columns.member),
  };
  let index = 0;
  for (let row = 0; row < columns.bands.length; row++) {
    let from = 0;
    for (let left = columns.bands[row]; left > 0; left--, index++) {
      from += columns.gap[index];
      const length = columns.length[index];
      bands.since[index] = times[from];
      if (from < firstTimes[columns.member[index]]) firstTimes[columns.member[index]] = from;
      bands.open[index] = length < 0 ? 1 : 0;
      if (length >= 0) from += length;
      bands.until[index] = length < 0 ? end : times[from];
    }
    bands.first[row + 1] = index;
  }
  return bands;
}

const NAMES = ['cause', 'evidence', 'likely', 'reason', 'strategy', 'rollout'];

function decodeRebalances(columns, times, words) {
  const rebalances = { ...columns, at: cumulativeSums(columns.at).map((index) => times[index]) };
  for (const name of NAMES.filter((name) => columns[name])) {
    rebalances[name] = columns[name].map((index) => (index < 0 ? null : words[index]));
  }
  return rebalances;
}

// Decodes lag from runs of buckets. Within a run, lag in seconds rises with time up to run_ends; null
// means unknown. at_least holds for all amounts of a run, or for none.
function decodeLag({ step, in_seconds: inSeconds, run_lengths: lengths, run_ends: lasts, at_least: floors }, begin) {
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

// Ranks members by their first time, so that members of the same time have different colours. A
// static member has one rank under all its member ids; replayed bands have only the member id.
function rankMembers(listed, firstTimes) {
  const staticIds = new Map(listed.filter((each) => each[3] !== null).map((each) => [each[0], each[3]]));
  const members = listed.map(([id, client, host]) => {
    const staticId = staticIds.has(id) ? staticIds.get(id) : null;
    return { id, client, host, staticId, key: staticId === null ? `m${id}` : `s${staticId}` };
  });
  const known = new Map();
  members.forEach(({ key }, index) => {
    known.set(key, Math.min(known.has(key) ? known.get(key) : Infinity, firstTimes[index]));
  });
  const clients = new Map(members.map((member) => [member.key, member.client]));
  const ranked = [...known].sort(([a, first], [b, second]) => (
    first - second || (clients.get(a) < clients.get(b) ? -1 : 1)));
  const ranks = new Map(ranked.map(([key], rank) => [key, rank]));
  for (const member of members) member.rank = ranks.get(member.key);
  return members;
}
