function drawProvenance() {
  const about = data.about;
  const entries = [
    ["Table", nameOf(about.source)],
    ["Fingerprint", el("code", null, about.fingerprint)],
    ["Size", `${count(about.rows)} rows` + (missing(about.users) ? "" : `, ${count(about.users)} users`) + (missing(about.items) ? "" : `, ${count(about.items)} items`)],
    ["Evidence", about.evidence],
    ["Versions", Object.entries(about.versions).map(([name, version]) => `${name} ${version}`).join(", ")],
    ["Made", about.made],
    ["Make it again", el("code", { id: "command" }, about.command)],
  ];
  section("provenance", "Provenance", el("dl", { class: "pairs" }, entries.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])));
}

drawTop("Calibration report", data.about.source, data.about.rows);
for (const draw of [drawHeadline, drawReliability, drawScores, drawMethods, drawThreshold, drawExplorer, drawSegments, drawProvenance]) draw();
if (threshold.update) threshold.update();
finish();
