"""Extensions that drive the layers of the data plane, each under its layer's name."""
