function drawProvenance() {
  const about = data.provenance;
  const sizes = [`${count(about.rows)} rows`];
  if (!isMissing(about.users)) sizes.push(`${count(about.users)} users`);
  if (!isMissing(about.items)) sizes.push(`${count(about.items)} items`);
  const entries = [
    ["Table", nameOf(about.source)],
    ["Size", sizes.join(", ")],
    ["Versions", versionsText(about.versions)],
    ["Created", about.created],
    ["Command", el("code", { id: "command" }, about.command)],
  ];
  if (about.fingerprint) entries.push(["Fingerprint", el("code", null, about.fingerprint)]);
  section("provenance", "Provenance", definitions(entries));
}

drawTop("Calibration report", data.provenance.source, data.provenance.rows);
drawHeadline();
drawReliability();
drawScores();
drawMetrics();
drawSegments();
drawProvenance();
finish();
