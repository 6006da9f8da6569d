// Every page of TonY: a job's own at its master, and the portal's. The server renders; this only
// keeps a page up to date, zooms charts and follows logs. What data says becomes text, never HTML.
(function () {
'use strict';
// Without its last slash a proxy's address of the page makes every link one of the proxy's.
if (/\/proxy\/application_\d+_\d+$/.test(location.pathname))
  return location.replace(location.pathname + '/' + location.search);
var main = document.querySelector('main'), data = main.dataset;
function sleep(ms) { return new Promise(function (done) { setTimeout(done, ms); }); }
function each(selector, act, root) { (root || document).querySelectorAll(selector).forEach(act); }
function make(name, attributes, text) {
  var made = document.createElement(name);
  Object.keys(attributes || {}).forEach(function (key) { made.setAttribute(key, attributes[key]); });
  if (text) made.textContent = text;
  return made;
}

// ---------------------------------------------------------------- one tree made like another
// Attributes and nodes of the script's own (data-own) stay, and so does what has the focus.
var STAYS = { open: 1, tabindex: 1, 'data-big': 1 };
function isOwn(node) { return node.nodeType === 1 && node.hasAttribute('data-own'); }
function sameKind(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || '') === (b.id || '');
}
function morph(old, fresh) {
  if (old.nodeType !== 1) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.hasAttribute('data-still')) return;
  Array.from(fresh.attributes).forEach(function (each) {
    if (old.getAttribute(each.name) !== each.value && !STAYS[each.name])
      old.setAttribute(each.name, each.value);
  });
  Array.from(old.attributes).forEach(function (each) {
    if (!fresh.hasAttribute(each.name) && !STAYS[each.name]) old.removeAttribute(each.name);
  });
  morphChildren(old, fresh);
}
function hasFocus(node) { return node.contains(document.activeElement); }
// Children with an id are known by it. What is gone goes first, so that the rest can stay in place;
// of two that have changed places the one without the focus is moved, since moving takes it away.
function morphChildren(old, fresh) {
  var wanted = new Map(), known = new Map(), at;
  function isKnown(node) { return known.get(node.id) === node; }
  Array.from(fresh.children).forEach(function (next) { if (next.id) wanted.set(next.id, next); });
  Array.from(old.children).forEach(function (child) {
    if (!child.id || isOwn(child)) return;
    var next = wanted.get(child.id);
    if (next && sameKind(child, next)) known.set(child.id, child); else old.removeChild(child);
  });
  at = old.firstChild;
  Array.from(fresh.childNodes).forEach(function (next) {
    while (at && isOwn(at)) at = at.nextSibling;
    var same = next.id && known.get(next.id), passed;
    if (same) {
      while (at !== same && (isOwn(at) || !hasFocus(at) && (!isKnown(at) || hasFocus(same)))) {
        passed = at;
        at = at.nextSibling;
        if (isKnown(passed)) old.insertBefore(passed, same.nextSibling);  // comes later
        else if (!isOwn(passed)) old.removeChild(passed);
      }
      if (at === same) at = at.nextSibling; else old.insertBefore(same, at);
      known.delete(next.id);
      morph(same, next);
    } else if (at && sameKind(at, next)) {
      morph(at, next);
      at = at.nextSibling;
    } else {
      var added = document.importNode(next, true);
      if (added.nodeName === 'TR' && at) added.classList.add('fresh');
      old.insertBefore(added, at);
    }
  });
  while (at) {
    var gone = at;
    at = at.nextSibling;
    if (!isOwn(gone)) old.removeChild(gone);
  }
}

// ---------------------------------------------------------------- live updates
var over = data.over === '1', tag = '', drawn = 0;
async function draw() {
  var head = tag ? { 'If-None-Match': tag } : {};
  var answer = await fetch(data.part || location.href, { cache: 'no-store', headers: head });
  drawn = Date.now();
  if (answer.status === 304) return;
  if (!answer.ok) throw 0;
  tag = answer.headers.get('ETag') || '';
  var page = new DOMParser().parseFromString(await answer.text(), 'text/html');
  var fresh = page.querySelector('main') || page.body;
  morphChildren(main, fresh);
  over = (answer.headers.get('X-Tony-Over') || fresh.dataset.over) === '1';
  enhance();
}
var notice = null;
function warn(fails) {
  if (notice || fails < 5) return;
  notice = make('p', { 'class': 'card wait', 'data-own': '', role: 'status' }, data.silent ||
    'The master does not answer any more: the job has ended, or a next master takes over. ');
  notice.append(make('a', { href: '' }, 'Look again'));
  main.prepend(notice);
}
async function live(step) {
  for (var fails = 0; !over;) {
    try {
      if (document.hidden) { await sleep(500); continue; }
      await step();
      fails = 0;
      if (notice) { notice.remove(); notice = null; }
    } catch (e) {
      warn(++fails);
      await sleep(fails > 5 ? 10000 : 2000);
    }
  }
}
if (data.next !== undefined) {
  var next = +data.next, wait = +data.wait, news = data.events || 'api/events';
  news += (news.indexOf('?') < 0 ? '?' : '&') + 'wait=' + wait + '&since=';
  live(async function () {
    var was = next, answer = await fetch(news + next, { cache: 'no-store' });
    if (!answer.ok) throw 0;
    next = (await answer.json()).next;
    if (wait || next !== was || Date.now() - drawn > 5000) await draw();
    await sleep(wait ? 1000 : 2000);
  });
} else if (data.every) {
  live(async function () { await sleep(data.every * 1000); await draw(); });
}

// ---------------------------------------------------------------- times as the reader's clock shows
function two(n) { return (n < 10 ? '0' : '') + n; }
function clock(at) {
  return two(at.getHours()) + ':' + two(at.getMinutes()) + ':' + two(at.getSeconds());
}
function day(at) {
  return at.getFullYear() + '-' + two(at.getMonth() + 1) + '-' + two(at.getDate());
}
function localise(root) {
  each('time[datetime]', function (item) {
    var at = new Date(item.getAttribute('datetime'));
    if (isNaN(at)) return;
    var text = item.dataset.only === 'clock' ? clock(at) : day(at) + ' ' +
      (item.dataset.only === 'minute' ? clock(at).slice(0, 5) : clock(at));
    if (item.textContent !== text) item.textContent = text;
  }, root);
}

// ---------------------------------------------------------------- a time that goes on
function tick() {
  each('[data-ticks]', function (item) {
    if (item.ticks !== item.dataset.ticks) {
      item.ticks = item.dataset.ticks;
      item.began = Date.now() / 1000 - item.ticks;
    }
    var text = length(Math.floor(Date.now() / 1000 - item.began));
    if (item.textContent !== text) item.textContent = text;
  });
}

// ---------------------------------------------------------------- charts: zoom, values, size
// All charts of a page share what is shown of their time (or steps); nothing in `seen`: all of it.
var SVG = 'http://www.w3.org/2000/svg', GRID = 1e6, seen = {};
function read(svg) {
  var shape = svg.dataset;
  if (svg.lines && svg.source === svg.innerHTML.length) return svg.lines;
  svg.lines = [];
  each('polyline', function (line) {
    var title = line.querySelector('title');
    var points = line.getAttribute('points').split(' ').map(function (pair) {
      var at = pair.indexOf(',');
      return [+pair.slice(0, at), +pair.slice(at + 1)];
    });
    var before = svg.lines[svg.lines.length - 1];
    if (!title && before) before.points = before.points.concat(points);  // after a break
    else svg.lines.push({ colour: line.getAttribute('class'),
      label: title ? title.textContent : '', points: points });
  }, svg);
  svg.scale = { first: +shape.first, width: +shape.width, low: +shape.low, height: +shape.height };
  svg.source = svg.innerHTML.length;
  return svg.lines;
}
function number(value) {
  var size = Math.abs(value);
  return size && (size < 1e-3 || size >= 1e7) ? value.toExponential(3) : String(+value.toPrecision(5));
}
function length(s) {  // as show_duration in durations.py
  var hours = Math.floor(s / 3600);
  if (s < 60) return +s.toFixed(1) + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + two(Math.floor(s % 60)) + ' s';
  if (hours >= 48) return Math.floor(hours / 24) + ' d ' + two(hours % 24) + ' h';
  return hours + ' h ' + two(Math.floor(s % 3600 / 60)) + ' min';
}
function across(svg, x) {
  if (svg.dataset.across === 'step') return 'step ' + Math.round(x);
  if (svg.dataset.across === 'seconds') return length(x);
  if (svg.dataset.across === 'day') return day(new Date(x * 1000));
  return clock(new Date(x * 1000));
}
function view(svg) {
  read(svg);
  var s = svg.scale, from = 0, to = GRID;
  var part = seen[svg.dataset.across];
  if (part) {
    from = Math.max(0, (part[0] - s.first) / s.width * GRID);
    to = Math.min(GRID, (part[1] - s.first) / s.width * GRID);
    if (to - from < 10) { from = 0; to = GRID; }
  }
  return [from, to];
}
function paint(chart) {
  var svg = chart.querySelector('svg'), range = view(svg), s = svg.scale, low = 1e99, high = -1e99;
  read(svg).forEach(function (line) {
    line.points.forEach(function (point) {
      if (point[0] < range[0] || point[0] > range[1]) return;
      low = Math.min(low, point[1]);
      high = Math.max(high, point[1]);
    });
  });
  if (low > high) { low = 0; high = GRID; }
  var room = (high - low || GRID) * .03;
  svg.setAttribute('viewBox', [range[0], low - room, range[1] - range[0],
    high - low + 2 * room || GRID].join(' '));
  var ends = chart.querySelector('.across'), limits = chart.querySelector('.range');
  if (!ends) return;
  var top = low - room, tall = high - low + 2 * room || GRID, px = svg.clientHeight || 1;
  Array.from(chart.querySelector('.axis').children).forEach(function (mark, index, all) {
    var part = (6 + index * (px - 12) / (all.length - 1)) / px;  // the middle of its line
    mark.textContent = number(s.low + (GRID - top - part * tall) / GRID * s.height);
  });
  limits.textContent = number(s.low + (GRID - high) / GRID * s.height) + ' … ' +
    number(s.low + (GRID - low) / GRID * s.height);
  ends.firstChild.textContent = across(svg, s.first + range[0] / GRID * s.width);
  ends.lastChild.textContent = across(svg, s.first + range[1] / GRID * s.width);
  chart.querySelector('.whole').hidden = !seen[svg.dataset.across];
}
function paintAll() { each('.chart', paint); }
function nearest(points, x) {
  var low = 0, high = points.length - 1;
  while (low < high) {
    var middle = low + high >> 1;
    if (points[middle][0] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - points[low - 1][0] < points[low][0] - x ? low - 1 : low;
}
function point(chart, x) {
  var svg = chart.querySelector('svg'), now = chart.querySelector('.now');
  var lines = read(svg), s = svg.scale, bar = svg.querySelector('.cursor');
  if (chart.kept === undefined) chart.kept = Array.from(now.childNodes);
  if (x === null) {
    if (bar) bar.remove();
    now.replaceChildren.apply(now, chart.kept);
    now.removeAttribute('data-still');
    chart.kept = chart.at = undefined;
    return;
  }
  chart.at = x;
  if (!bar) {
    bar = document.createElementNS(SVG, 'line');
    bar.setAttribute('class', 'cursor');
    bar.setAttribute('data-own', '');
    svg.append(bar);
  }
  bar.setAttribute('x1', x); bar.setAttribute('x2', x);
  bar.setAttribute('y1', -GRID); bar.setAttribute('y2', 2 * GRID);
  now.setAttribute('data-still', '');
  now.replaceChildren(make('span', { 'class': 'value soft' }, across(svg, s.first + x / GRID * s.width)));
  lines.forEach(function (line) {
    if (!line.points.length) return;
    var value = s.low + (GRID - line.points[nearest(line.points, x)][1]) / GRID * s.height;
    var item = make('span', { 'class': 'value' });
    item.append(make('i', { 'class': line.colour }), number(value));
    item.title = line.label;
    now.append(item);
  });
}
function zoom(svg, from, to) {
  var s = svg.scale;
  seen[svg.dataset.across] = from <= 0 && to >= GRID ? null :
    [s.first + from / GRID * s.width, s.first + to / GRID * s.width];
  paintAll();
}
function enlarge(chart) {
  chart.toggleAttribute('data-big');
  sized(chart);
  paint(chart);
}
function sized(chart) {  // what its button would do
  chart.querySelector('.larger').textContent = chart.hasAttribute('data-big') ? 'Smaller' : 'Larger';
}
function keys(chart, event) {
  var svg = chart.querySelector('svg'), range = view(svg), wide = range[1] - range[0];
  var at = chart.at === undefined ? range[1] : chart.at, points = read(svg)[0].points;
  var move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (move && event.shiftKey) {
    move *= wide / 4;
    if (range[0] + move < 0) move = -range[0];
    if (range[1] + move > GRID) move = GRID - range[1];
    zoom(svg, range[0] + move, range[1] + move);
  } else if (move) {
    var index = Math.min(points.length - 1, Math.max(0, nearest(points, at) + move));
    point(chart, chart.at === undefined ? at : points[index][0]);
  } else if (event.key === '+' || event.key === '=' || event.key === '-') {
    wide *= event.key === '-' ? 2 : .5;
    var left = Math.min(Math.max(0, at - wide / 2), Math.max(0, GRID - wide));
    zoom(svg, left, left + wide);
  } else if (event.key === '0' || event.key === 'Escape') {
    zoom(svg, 0, GRID);
    point(chart, null);
  } else if (event.key === 'Enter') enlarge(chart);
  else return;
  event.preventDefault();
}
function chartUp(chart) {
  var svg = chart.querySelector('svg');
  if (!svg || chart.ready) return;
  chart.ready = true;
  var ends = make('div', { 'class': 'across', 'data-own': '' }), tools = make('div');
  var larger = make('button', { type: 'button', 'class': 'small larger' });
  var whole = make('button', { type: 'button', 'class': 'small whole', hidden: '' }, 'Whole time');
  tools.append(larger, whole);
  ends.append(make('span'), tools, make('span'));
  var axis = make('div', { 'class': 'axis', 'data-own': '', 'aria-hidden': 'true' });
  for (var marks = 5; marks--;) axis.append(make('span'));
  chart.append(axis, ends);
  sized(chart);
  svg.setAttribute('tabindex', '0');
  larger.onclick = function () { enlarge(chart); };
  whole.onclick = function () { zoom(svg, 0, GRID); svg.focus(); };
  var began = null, box = null;
  function place(event) {
    var frame = svg.getBoundingClientRect(), range = view(svg);
    var part = Math.min(1, Math.max(0, (event.clientX - frame.left) / frame.width));
    return range[0] + part * (range[1] - range[0]);
  }
  function stop() { if (box) box.remove(); began = box = null; }
  svg.onpointermove = function (event) {
    var x = place(event);
    point(chart, x);
    if (began === null) return;
    if (!box) {
      box = document.createElementNS(SVG, 'rect');
      box.setAttribute('class', 'picked');
      box.setAttribute('data-own', '');
      box.setAttribute('y', -GRID); box.setAttribute('height', 3 * GRID);
      svg.append(box);
    }
    box.setAttribute('x', Math.min(began, x));
    box.setAttribute('width', Math.abs(x - began));
  };
  svg.onpointerdown = function (event) {
    if (event.button) return;
    began = place(event);
    if (event.pointerType === 'mouse') svg.setPointerCapture(event.pointerId);
  };
  svg.onpointerup = function (event) {
    var x = place(event), range = view(svg);
    if (began !== null && Math.abs(x - began) > (range[1] - range[0]) / 100)
      zoom(svg, Math.min(began, x), Math.max(began, x));
    stop();
  };
  svg.onpointercancel = stop;
  svg.onpointerleave = function () { if (document.activeElement !== svg) point(chart, null); };
  svg.ondblclick = function () { zoom(svg, 0, GRID); };
  svg.onkeydown = function (event) { keys(chart, event); };
  svg.onblur = function () { point(chart, null); };
  paint(chart);
}

// ---------------------------------------------------------------- one log
function plain(text) {  // as the portal's server does: no terminal's commands
  return text.replace(/\x1b\[[0-?]*[ -\/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/g, '')
    .replace(/\r\n/g, '\n').replace(/\r/g, '\n')
    .replace(/[\x00-\x08\x0b-\x1f\x7f]/g, '\ufffd');
}
function logUp() {
  var box = document.querySelector('pre.log[data-source]');
  if (!box || box.ready) return;
  box.ready = true;
  var at = +box.dataset.end, done = box.dataset.over === '1', follows = box.dataset.tail === '1';
  var decoder = new TextDecoder('utf-8'), tools = document.querySelector('.tools');
  var follow = make('button', { type: 'button', 'data-own': '', 'aria-pressed': follows }, 'Follow');
  var wrap = make('button', { type: 'button', 'data-own': '', 'aria-pressed': 'true' }, 'Wrap lines');
  tools.prepend(follow, wrap);
  function end() { box.scrollTop = box.scrollHeight; }
  function pressed(button, is) { button.setAttribute('aria-pressed', is); }
  if (follows) end();
  follow.hidden = box.dataset.tail !== '1' || done;
  follow.onclick = function () { pressed(follow, follows = !follows); if (follows) end(); };
  wrap.onclick = function () { pressed(wrap, !box.classList.toggle('nowrap')); };
  box.onscroll = function () {  // away from the end: the reader reads
    var bottom = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    if (follows !== bottom && !follow.hidden) pressed(follow, follows = bottom);
  };
  if (follow.hidden) return;
  (async function () {
    for (var fails = 0; !done;) {
      await sleep(document.hidden ? 2000 : fails ? 5000 : 1000);
      if (document.hidden) continue;
      try {
        var mark = box.dataset.source.indexOf('?') < 0 ? '?' : '&';
        var answer = await fetch(box.dataset.source + mark + 'offset=' + at, { cache: 'no-store' });
        if (answer.status === 404) continue;  // not yet
        if (!answer.ok) throw 0;
        var bytes = await answer.arrayBuffer();
        at = +answer.headers.get('X-Next-Offset');
        done = answer.headers.get('X-Tony-Over') === '1' && !bytes.byteLength;
        fails = 0;
        if (!bytes.byteLength) continue;
        var note = box.querySelector('[data-empty]');
        if (note) note.remove();
        box.append(plain(decoder.decode(bytes, { stream: true })));
        while (box.childNodes.length > 60) box.firstChild.remove();
        if (follows) end();
      } catch (e) { fails++; }
    }
    follow.hidden = true;
  })();
}

// ---------------------------------------------------------------- small conveniences
function filterUp() {  // rows of a table by what stands in them
  each('input[data-filters]', function (input) {
    if (input.ready) return;
    input.ready = true;
    input.hidden = false;
    input.oninput = function () {
      var words = input.value.toLowerCase().split(/\s+/);
      each('#' + input.dataset.filters + ' tbody tr', function (row) {
        var text = row.textContent.toLowerCase();
        row.hidden = !words.every(function (word) { return text.indexOf(word) >= 0; });
      });
    };
  });
}
document.addEventListener('keydown', function (event) {
  var search = document.querySelector('input[type=search]'), at = document.activeElement;
  if (event.key !== '/' || !search || /^(INPUT|SELECT|TEXTAREA)$/.test(at && at.nodeName)) return;
  event.preventDefault();
  search.focus();
});
function enhance() {
  localise(main);
  each('.chart', function (chart) { chartUp(chart); if (chart.ready) paint(chart); });
  filterUp();
  logUp();
}
enhance();
setInterval(function () { if (!over && !document.hidden) tick(); }, 1000);
})();
