// Unpacks a group's data, which rota.report.page.chart_data packs.
async function unpackChart(base64) {
  return decodeChart(await unpackJson(base64));
}

function cumulativeSums(deltas) {
  const sums = new Float64Array(deltas.length);
  let sum = 0;
  for (let index = 0; index < deltas.length; index++) sums[index] = sum += deltas[index];
  return sums;
}

function decodeChart(data) {
  const times = cumulativeSums(data.times);
  const rowPartition = cumulativeSums(data.row_partitions);
  const rows = data.row_topics.length;
  const rowNames = Array.from({ length: rows }, (_, row) => `${visibleName(data.topics[data.row_topics[row]])}-${rowPartition[row]}`);
  const chart = {
    group: data.group,
    begin: data.begin,
    end: data.end,
    topics: data.topics,
    rowTopic: data.row_topics,
    rowPartition,
    rowNames,
    actualBands: decodeBands(data.ownership, times, data.end),
    replayedBands: data.advised_ownership && decodeBands(data.advised_ownership, times, data.end),
    rebalances: decodeRebalances(data.rebalances, times, data.words),
    replayed: data.replayed && decodeRebalances(data.replayed, times, data.words),
    stops: decodeStops(data.stops, data.words, rows),
    lag: data.lag && decodeLag(data.lag, data.begin),
    policies: data.policies,
    lines: decodeLines(data.lines),
  };
  const rowIndex = new Map(rowNames.map((_, row) => [`${data.row_topics[row]} ${rowPartition[row]}`, row]));
  chart.partitionLags = data.partition_lags.map((series) => ({
    ...decodeLag(series, data.begin),
    name: `${visibleName(series.topic)}-${series.partition}`,
    row: rowIndex.get(`${data.topics.indexOf(series.topic)} ${series.partition}`) ?? null,
  }));
  chart.members = decodeMembers(data.members, chart);
  return chart;
}

// Decodes the bands, row after row: the bands of row r have the indexes first[r] to first[r + 1].
function decodeBands(columns, times, end) {
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
      bands.open[index] = length < 0 ? 1 : 0;
      if (length >= 0) from += length;
      bands.until[index] = length < 0 ? end : times[from];
    }
    bands.first[row + 1] = index;
  }
  return bands;
}

const WORD_COLUMNS = ['evidence', 'likely', 'reason', 'strategy', 'rollout', 'kind', 'protocol'];

// Decodes the columns of rebalances. `begin` is the stated start, or the end if it is unknown.
function decodeRebalances(columns, times, words) {
  const word = (index) => (index < 0 ? null : words[index]);
  const at = cumulativeSums(columns.at).map((index) => times[index]);
  const rebalances = { ...columns, at, count: at.length };
  rebalances.cause = Uint8Array.from(columns.cause, (index) => causeIndex(word(index)));
  for (const name of WORD_COLUMNS.filter((name) => columns[name])) rebalances[name] = columns[name].map(word);
  rebalances.begin = at.map((time, index) => time - (columns.took?.[index] || 0));
  return rebalances;
}

// Times without a consumer. A stop has one or more partitions: the stops of row r are
// byRow[first[r]] to byRow[first[r + 1]], by their end.
function decodeStops(columns, words, rows) {
  const until = cumulativeSums(columns.until);
  const first = new Uint32Array(rows + 1);
  const runs = columns.runs.map(decodeRuns);
  for (const each of runs) for (const [begin, end] of each) for (let row = begin; row < end; row++) first[row + 1]++;
  for (let row = 0; row < rows; row++) first[row + 1] += first[row];
  const byRow = new Uint32Array(first[rows]);
  const next = first.slice();
  runs.forEach((each, stop) => {
    for (const [begin, end] of each) for (let row = begin; row < end; row++) byRow[next[row]++] = stop;
  });
  return {
    since: until.map((time, index) => time - columns.length[index]),
    until,
    reason: columns.reason.map((index) => words[index]),
    rebalance: columns.rebalance,
    partitions: runs.map((each) => each.reduce((sum, [begin, end]) => sum + end - begin, 0)),
    first,
    byRow,
    leftOut: columns.left_out,
    withoutRebalance: columns.rebalance.flatMap((rebalance, stop) => (rebalance < 0 ? [stop] : [])),
  };
}

function decodeRuns(numbers) {
  const runs = [];
  let end = 0;
  for (let index = 0; index < numbers.length; index += 2) {
    const begin = end + numbers[index];
    end = begin + numbers[index + 1];
    runs.push([begin, end]);
  }
  return runs;
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

// The lines of the broker's log by the index of their rebalance.
function decodeLines({ rebalance, before, file, line, text, files }) {
  const lines = new Map();
  rebalance.forEach((index, place) => {
    const own = lines.get(index) || [];
    own.push({ before: before[place], file: files[file[place]], line: line[place], text: text[place] });
    lines.set(index, own);
  });
  return lines;
}

const MEMBER_ID_SUFFIX = /-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

// Returns the members with their name, the time they had partitions, and a colour slot. A static
// member has one key under all its member ids; replayed bands have only the member id.
function decodeMembers(listed, chart) {
  const staticIds = new Map(listed.filter((each) => each[3] !== null).map((each) => [each[0], each[3]]));
  const members = listed.map(([id, client, host]) => {
    const staticId = staticIds.get(id) ?? null;
    return { id, client, host, staticId, key: staticId === null ? `m${id}` : `s${staticId}`, first: Infinity, last: -Infinity };
  });
  extendTimes(members, chart.actualBands);
  chart.rebalances.joined.forEach((joined, index) => {
    for (const member of joined) members[member].first = Math.min(members[member].first, chart.rebalances.at[index]);
  });
  if (chart.replayedBands) extendTimes(members, chart.replayedBands, (member) => member.first === Infinity);
  nameMembers(members, chart.group.name);
  assignSlots(members);
  return members;
}

function extendTimes(members, bands, isWanted = () => true) {
  const wanted = members.map(isWanted);
  for (let index = 0; index < bands.member.length; index++) {
    if (!wanted[bands.member[index]]) continue;
    const member = members[bands.member[index]];
    if (bands.since[index] < member.first) member.first = bands.since[index];
    if (bands.until[index] > member.last) member.last = bands.until[index];
  }
}

// Sets the short name of each member: its static id, client id, or host if several hosts have one
// client id. The prefix that all have is left out.
function nameMembers(members, group) {
  const hosts = new Map();
  for (const { client, host } of members) if (client !== null) hosts.set(client, (hosts.get(client) || new Set()).add(host));
  for (const member of members) {
    const client = member.client ?? member.id.replace(MEMBER_ID_SUFFIX, '');
    member.fullName = visibleName(member.staticId ?? client);
    const isShared = member.staticId === null && hosts.get(member.client)?.size > 1;
    if (isShared) member.fullName += ` (${member.host.replace(/^\//, '')})`;
    const own = isShared ? member.host.replace(/^\//, '') : member.staticId ?? client;
    const short = own.replace(/^consumer-/, '').replace(`${group}-`, '');
    member.name = visibleName(short || own);
  }
}

// Gives each member a colour slot: that of an earlier member with its name, if it is free, so that a
// process that restarts keeps its colour; otherwise the lowest free one.
function assignSlots(members) {
  const slots = [];
  const lastSlot = new Map();
  const keys = new Map();
  const ordered = [...members].sort((a, b) => a.first - b.first || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  for (const member of ordered) {
    if (keys.has(member.key)) {
      member.slot = keys.get(member.key);
    } else {
      const before = lastSlot.get(member.fullName);
      const isFree = (slot) => slots[slot] <= member.first;
      member.slot = before !== undefined && isFree(before) ? before : slots.findIndex((until) => until <= member.first);
      if (member.slot < 0) member.slot = slots.length;
      lastSlot.set(member.fullName, member.slot);
      keys.set(member.key, member.slot);
    }
    slots[member.slot] = Math.max(slots[member.slot] ?? -Infinity, member.last);
  }
}

// Returns the index of the band of a row at a time; null if no member owned the partition.
function bandAt(bands, row, time) {
  const index = lowerBound(bands.since, time + TIME_EPSILON, bands.first[row], bands.first[row + 1]) - 1;
  return index >= bands.first[row] && (bands.open[index] || time < bands.until[index]) ? index : null;
}

// Milliseconds: less than the distance of two times, more than the rounding error of a time.
const TIME_EPSILON = 1e-2;

// Returns the index of the member that owns the partition of a row at a time, or null.
function ownerAt(bands, row, time) {
  const band = bandAt(bands, row, time);
  return band === null ? null : bands.member[band];
}

// Returns the stop of a partition at a time, or null.
function stopAt(stops, row, time) {
  for (let place = stops.first[row]; place < stops.first[row + 1]; place++) {
    const stop = stops.byRow[place];
    if (stops.since[stop] <= time && time < stops.until[stop]) return stop;
  }
  return null;
}
