"""The commands of the command line; a module of its own because `calibrank --help` must be fast."""

COMMANDS = {
    "train": "Train a base model and hold out pairs to calibrate it on.",
    "score": "Add a column of a trained model's scores to a table of users and items.",
    "diagnose": "Check a table before fitting: what it identifies, and which labels to collect.",
    "fit": "Fit a calibration map to a table of scores and labels of any size.",
    "anchor": "Move a map to labels that can be trusted more, or to a known base rate.",
    "apply": "Add a column of probabilities to a table, file by file.",
    "evaluate": "Evaluate probabilities against labels: all metrics, with intervals over users.",
    "compare": "Compare all calibration methods by cross-validation over users.",
    "control": "Find where lists must end to keep promises about new users, or queries.",
    "inspect": "Describe a saved map, find the score of a probability, or write a card.",
    "report": "Write an interactive HTML page on how well probabilities are calibrated.",
    "monitor": "Check whether a deployed map is still right, on a store of daily summaries.",
    "export": "Convert a map to SQL, ONNX, a torch program, a search engine's script or JSON.",
    "search": "Probabilities of relevance for search runs: fit, apply, plan.",
    "reproduce": "Run the experiments of a paper; finished cells are kept.",
    "demo": "Compare every calibration method on synthetic data with known preferences.",
}
"""Name and first line of help; each is a function in the module of its name in `calibrank.cli`."""
