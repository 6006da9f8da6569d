"""The page's style and its few lines of script, as text that goes into the page itself."""

from __future__ import annotations

STYLE = """
:root{--bg:#f7f7f5;--card:#fff;--ink:#1c1d1f;--soft:#6b7076;--line:#e4e4e0;--run:#2563eb;
--ok:#15803d;--bad:#c22727;--warn:#b45309;--idle:#8a8f98;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--bg:#15171a;--card:#1d2024;--ink:#e7e8ea;
--soft:#9aa0a8;--line:#2e3238;--run:#6ea0ff;--ok:#4cc27a;--bad:#ff7b72;--warn:#e3a33c}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:24px;margin:0;font-weight:650;overflow-wrap:anywhere}
h2{font-size:13px;letter-spacing:.06em;text-transform:uppercase;color:var(--soft);
margin:34px 0 10px;font-weight:600}
a{color:var(--run);text-decoration:none}a:hover{text-decoration:underline}
.top{display:flex;flex-wrap:wrap;gap:12px;align-items:center}
.soft{color:var(--soft)}.mono,pre,code{font:13px/1.5 ui-monospace,Menlo,Consolas,monospace}
.state{padding:2px 10px;border-radius:99px;font-size:12px;font-weight:650;color:#fff;
background:var(--idle);letter-spacing:.03em}
.s-running{background:var(--run)}.s-succeeded{background:var(--ok)}
.s-failed,.s-lost,.s-timed_out{background:var(--bad)}.s-killed{background:var(--warn)}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 18px;
margin-top:14px}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px 24px}
.facts dt{font-size:12px;color:var(--soft)}.facts dd{margin:0;overflow-wrap:anywhere}
progress{width:100%;height:8px;accent-color:var(--run);margin-top:14px}
pre{margin:8px 0 0;white-space:pre-wrap;overflow-wrap:anywhere}
.bad{border-left:4px solid var(--bad)}.wait{border-left:4px solid var(--warn)}
.links a{display:inline-block;padding:5px 12px;border:1px solid var(--line);border-radius:8px;
background:var(--card);margin:0 8px 8px 0}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
th{font-weight:600;text-align:left;color:var(--soft);font-size:12px}
th,td{padding:7px 12px 7px 0;border-bottom:1px solid var(--line);vertical-align:top}
td.num{font-variant-numeric:tabular-nums}
details summary{cursor:pointer;color:var(--soft)}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(250px,1fr));gap:14px}
.chart{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 14px}
.chart b{font-weight:600}.chart svg{display:block;width:100%;height:64px;margin-top:6px}
.chart .range{float:right}.chart .now{margin:2px 0 0;font-variant-numeric:tabular-nums}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 12px;padding:0}
.legend i,.now i{display:inline-block;width:12px;height:3px;border-radius:2px;
margin-right:6px;vertical-align:middle;background:currentColor}
polyline{fill:none;stroke:currentColor;stroke-width:1.6;vector-effect:non-scaling-stroke}
.c0{color:#2563eb}.c1{color:#d97706}.c2{color:#059669}.c3{color:#db2777}
.c4{color:#7c3aed}.c5{color:#0891b2}.c6{color:#65a30d}.c7{color:#dc2626}.c8{color:var(--idle)}
.story{list-style:none;margin:0;padding:0}
.story li{display:grid;grid-template-columns:78px 1fr;gap:12px;padding:4px 0 4px 12px;
border-left:2px solid var(--line)}
.story .decision{border-color:var(--run)}.story .warning{border-color:var(--warn)}
.story .error{border-color:var(--bad)}.story .text{white-space:pre-wrap;overflow-wrap:anywhere}
footer{margin-top:40px;font-size:13px;color:var(--soft)}
"""

# The server renders; the script only fetches the page's inside again when the story goes on.
SCRIPT = r"""
(function(){
// Without its last slash a proxy's address of the page makes every link one of the proxy's.
if(/\/proxy\/application_\d+_\d+$/.test(location.pathname))
 return location.replace(location.pathname+'/'+location.search);
var main=document.querySelector('main'),next=+main.dataset.next,over=main.dataset.over==='1',
wait=+main.dataset.wait,drawn=0;
function sleep(ms){return new Promise(function(r){setTimeout(r,ms)})}
async function draw(){
 var r=await fetch('inside',{cache:'no-store'});if(!r.ok)throw 0;
 var open={},top=scrollY;
 main.querySelectorAll('details[open]').forEach(function(d){open[d.id]=1});
 main.innerHTML=await r.text();
 Object.keys(open).forEach(function(id){var d=document.getElementById(id);if(d)d.open=true});
 scrollTo(0,top);over=r.headers.get('X-Tony-Over')==='1';drawn=Date.now();
}
(async function(){
 var fails=0;
 while(!over){
  try{
   var was=next,r=await fetch('api/events?wait='+wait+'&since='+next,{cache:'no-store'});
   if(!r.ok)throw 0;
   next=(await r.json()).next;
   if(wait||next!==was||Date.now()-drawn>5000)await draw();
   fails=0;await sleep(wait?1000:2000);
  }catch(e){
   if(++fails>5){main.insertAdjacentHTML('afterbegin',
    '<p class="card wait">The master does not answer any more: the job has ended, '+
    'or a next master takes over. <a href="">Look again</a>.</p>');return}
   await sleep(2000);
  }
 }
})();
})();
"""
