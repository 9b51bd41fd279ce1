drawTop("Results of a reproduction", data.source, data.rows);
const updateResults = drawResults();
updateResults();
finish();
