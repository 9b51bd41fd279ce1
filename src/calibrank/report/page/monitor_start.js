drawTop("Monitoring a calibration map", data.source, data.rows);
drawMonitor();
finish();
