#include "router/operators/status_page.h"

namespace baton::router {

std::string_view StatusPage() {
  return R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Baton</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 88rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; margin: 0; } h2 { font-size: 1rem; margin: 1.5rem 0 .5rem; } #sub { opacity: .7; margin: 0 0 1.5rem; }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2.5rem; margin: 0 0 1.5rem; }
dt { opacity: .7; font-size: .85rem; } dd { margin: 0; font-size: 1.25rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .5rem; border-bottom: 1px solid #8884; }
td { white-space: nowrap; }
th { font-weight: 600; font-size: .85rem; line-height: 1.2; opacity: .7; vertical-align: bottom; }
th:first-child, td:first-child,
th:nth-child(2), td:nth-child(2), th:nth-child(3), td:nth-child(3),
.wide th:nth-child(4), .wide td:nth-child(4), .wide th:nth-child(5), .wide td:nth-child(5) { text-align: left; }
.bad { color: #c33; font-weight: 600; }
</style></head><body>
<h1>Baton</h1><p id="sub">waiting for the router…</p>
<dl id="facts"></dl>
<div class="scroll"><table class="wide"><thead><tr><th>worker<th>roles<th>device<th>version<th>state<th>running<th>waiting<th>awaiting KV
<th>KV used<th>cached blocks<th>hit rate<th>drafts accepted<th>KV moved<th>prompt tok/s<th>output tok/s
<th>preemptions<th>leaked blocks<th>quarantined blocks</tr></thead>
<tbody id="workers"></tbody></table></div>
<div class="scroll" id="ranked" hidden><h2>Ranks</h2><table><thead><tr><th>worker<th>rank
<th>step<th>of it exchange</tr></thead><tbody id="ranks"></tbody></table></div>
<div class="scroll" id="failing" hidden><h2>Hand-offs that fail</h2><table><thead><tr><th>from<th>to
<th>because<th>in a row<th>last</tr></thead><tbody id="pairs"></tbody></table></div>
<div class="scroll" id="asking" hidden><h2>Clients</h2><table><thead><tr><th>tenant<th>key<th>errors
<th>running<th>requests<th>tokens</tr></thead><tbody id="callers"></tbody></table></div>
<div class="scroll" id="strangers" hidden><h2>Refused without proof</h2><table><thead><tr><th>port<th>from
<th>because<th>times<th>last</tr></thead><tbody id="peers"></tbody></table></div>
<div class="scroll" id="refused" hidden><h2>Refused joins</h2><table><thead><tr><th>worker<th>from
<th>because<th>attempts<th>last</tr></thead><tbody id="refusals"></tbody></table></div>
<script>
const $ = id => document.getElementById(id);
const cell = (row, text, bad) => {
  const td = row.insertCell(); td.textContent = text; if (bad) td.className = 'bad';
};
const fact = (name, value) => {
  const div = document.createElement('div');
  const dt = document.createElement('dt'), dd = document.createElement('dd');
  dt.textContent = name; dd.textContent = value; div.append(dt, dd); $('facts').append(div);
};
const ms = v => v < 10 ? v.toFixed(1) + ' ms' : v < 9999.5 ? v.toFixed(0) + ' ms' :
    (v / 1e3).toFixed(1) + ' s';
const percent = v => (100 * v).toFixed(0) + '%';
const bytes = v => v < 1e6 ? (v / 1e3).toFixed(0) + ' kB' : v < 1e9 ?
    (v / 1e6).toFixed(0) + ' MB' : (v / 1e9).toFixed(1) + ' GB';
const whole = (v, unit) => Math.floor(v) + ' ' + unit;
const time = s => s < 60 ? whole(s, 's') : s < 3600 ? whole(s / 60, 'min ') + whole(s % 60, 's') :
    whole(s / 3600, 'h ') + whole(s / 60 % 60, 'min');
async function refresh() {
  try {
    const s = await (await fetch('/status.json')).json();
    if (s.error) throw new Error(s.error.message);
    $('sub').textContent = `${s.model} · ${s.router_id} · version ${s.version} · up ` +
        time(s.uptime_seconds);
    $('facts').replaceChildren();
    fact('running', s.requests_running); fact('waiting', s.requests_waiting);
    fact('ended', s.requests_total); fact('failed', s.requests_failed); fact('retries', s.retries);
    if (s.replays) {
      const skipped = Object.values(s.replays.skipped).reduce((sum, n) => sum + Number(n), 0);
      fact('replays equal / different / skipped',
          s.replays.checked + ' / ' + s.replays.mismatches + ' / ' + skipped);
    }
    fact('TTFT p50 / p99', ms(s.ttft_p50_ms) + ' / ' + ms(s.ttft_p99_ms));
    fact('TPOT p50 / p99', ms(s.tpot_p50_ms) + ' / ' + ms(s.tpot_p99_ms));
    $('workers').replaceChildren(); $('ranks').replaceChildren();
    for (const w of s.workers) {
      const row = $('workers').insertRow();
      const used = w.blocks_total ? 1 - w.blocks_free / w.blocks_total : 0;
      cell(row, w.worker_id); cell(row, w.roles);
      cell(row, w.device + (w.deterministic ? '' : ' (not deterministic)'));
      cell(row, w.version);
      cell(row, w.state, w.state !== 'ready');
      cell(row, w.running); cell(row, w.waiting); cell(row, w.awaiting_kv);
      cell(row, percent(used)); cell(row, w.blocks_cached); cell(row, percent(w.cache_hit_rate));
      cell(row, w.draft_acceptance === undefined ? '-' : percent(w.draft_acceptance));
      const over = [...new Set(w.transports.map(t => t.transport))].filter(t => t).join(', ');
      cell(row, bytes(w.transports.reduce((sum, t) => sum + Number(t.bytes), 0)) +
          (over ? ' over ' + over : ''));
      cell(row, w.prompt_tokens_per_second.toFixed(0)); cell(row, w.output_tokens_per_second.toFixed(0));
      cell(row, w.preemptions);
      cell(row, w.blocks_leaked, w.blocks_leaked !== 0);
      cell(row, w.blocks_quarantined, w.blocks_quarantined !== 0);
      if (w.ranks.length > 1) w.ranks.forEach((rank, index) => {
        const row = $('ranks').insertRow();
        cell(row, w.worker_id); cell(row, index); cell(row, ms(rank.step_ms));
        cell(row, rank.exchange_ms === undefined ? '-' : ms(rank.exchange_ms));
      });
    }
    $('ranked').hidden = !s.workers.some(w => w.ranks.length > 1);
    $('failing').hidden = s.failing_pairs.length === 0;
    $('pairs').replaceChildren();
    for (const p of s.failing_pairs) {
      const row = $('pairs').insertRow();
      cell(row, p.prefill_worker); cell(row, p.decode_worker); cell(row, p.reason, true);
      cell(row, p.failures); cell(row, time(p.age_ms / 1e3) + ' ago');
    }
    $('asking').hidden = s.callers.length === 0;
    $('callers').replaceChildren();
    for (const c of s.callers) {
      const row = $('callers').insertRow();
      const errors = Object.entries(c.errors).map(([kind, n]) => n + ' ' + kind).join(', ');
      const slash = c.id.lastIndexOf('/');
      cell(row, c.id.slice(0, slash)); cell(row, c.id.slice(slash + 1));
      cell(row, errors || '-', errors); cell(row, c.running); cell(row, c.requests); cell(row, c.tokens);
    }
    $('strangers').hidden = s.refused_peers.length === 0;
    $('peers').replaceChildren();
    for (const p of s.refused_peers) {
      const row = $('peers').insertRow();
      cell(row, p.port); cell(row, p.address); cell(row, p.reason, true);
      cell(row, p.refusals); cell(row, time(p.age_ms / 1e3) + ' ago');
    }
    $('refused').hidden = s.refused_joins.length === 0;
    $('refusals').replaceChildren();
    for (const r of s.refused_joins) {
      const row = $('refusals').insertRow();
      cell(row, r.worker_id || '?'); cell(row, r.address); cell(row, r.reason, true);
      cell(row, r.attempts); cell(row, time(r.age_ms / 1e3) + ' ago');
    }
  } catch (error) { $('sub').textContent = 'no answer from the router: ' + error.message; }
  setTimeout(refresh, 1000);
}
refresh();
</script></body></html>
)html";
}

}  // namespace baton::router
