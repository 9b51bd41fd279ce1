// What the page knows about a metric: the explanation that Python sent, by name.
const METRIC_TITLES = {
  LogLoss: "Log loss",
  ConstantLogLoss: "Log loss of a constant",
  LogLossGain: "Gain over a constant",
  CalibrationInTheLarge: "Predicted / observed",
  CalibrationSlope: "Calibration slope",
  CalibrationIntercept: "Calibration intercept",
  DebiasedECE: "ECE without chance",
  ReleasedMCE: "MCE (as released)",
};

const metricTitle = (name) => METRIC_TITLES[name] || name;
const metricExplanation = (name) => data.metrics[name];
