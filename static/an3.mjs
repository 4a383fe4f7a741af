import { build } from "esbuild";import {gzipSync} from "node:zlib";
const r=await build({bundle:true,format:"esm",target:"es2022",jsx:"automatic",jsxImportSource:"preact",minify:true,splitting:true,outdir:"/tmp/an",entryPoints:["src/main.tsx"],metafile:true,write:false});
const o=r.metafile.outputs; const f=s=>Object.entries(o).find(([,x])=>x.entryPoint===s)[0];
const set=new Set([f("src/main.tsx"),f("src/components/SessionPage.tsx")]); for(const x of set) for(const i of o[x].imports) if(i.kind==="import-statement") set.add(i.path);
let cat=[]; let sum=0; for(const x of set){const c=r.outputFiles.find(y=>y.path.endsWith(x.split("/").pop())).contents; cat.push(Buffer.from(c)); sum+=gzipSync(c).length; console.log(o[x].bytes,gzipSync(c).length,Object.keys(o[x].inputs).map(i=>i.split("/").pop()).slice(0,6).join(" "))}
console.log("sum",sum,"as one",gzipSync(Buffer.concat(cat)).length);
