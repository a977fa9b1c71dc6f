"""Trains a classifier of scikit-learn's digits, rewrites it, and compares accuracy and size.

The data comes with scikit-learn (1797 images of 8 x 8 pixels, real handwriting); nothing is
downloaded. The rewritten models are made by the command line, as a user would, and loaded with
`tf.saved_model.load`.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets, model_selection

from tf_amp_rewriter import quiet

with quiet.quiet_stderr():
    import keras
    import tensorflow as tf

EPOCHS = 15
Images = NDArray[np.float32]
Labels = NDArray[np.int64]


def main() -> None:
    """Runs the demo and prints its table."""
    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32).reshape(-1, 8, 8, 1)
    train_x, test_x, train_y, test_y = model_selection.train_test_split(
        images, labels, test_size=0.3, random_state=0, stratify=labels
    )
    print(f"training on {len(train_x)} handwritten digits, {len(test_x)} are held out")
    with tempfile.TemporaryDirectory(prefix="tf_amp_rewriter_demo_") as folder:
        source = pathlib.Path(folder) / "float32"
        train(train_x, train_y).export(source, verbose=False)
        directories = {"float32": source}
        for dtype in ("half", "bfloat16"):
            directories[dtype] = source.with_name(dtype)
            rewrite(source, directories[dtype], dtype)
        expected = predict(source)(test_x)
        print("\n          accuracy   size on disk   largest change of a probability")
        for dtype, directory in directories.items():
            found = predict(directory)(test_x)
            accuracy = float(np.mean(found.argmax(-1) == test_y))
            kilobytes = sum(f.stat().st_size for f in directory.rglob("*") if f.is_file()) / 1000
            change = float(np.abs(found - expected).max())
            print(f"{dtype:8}  {accuracy:7.2%}   {kilobytes:9.0f} kB   {change:.5f}")


def train(images: Images, labels: Labels) -> keras.Model:
    """Returns a small convolutional network, trained; seeded."""
    keras.utils.set_random_seed(0)
    network = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(512, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    network.compile("adam", "sparse_categorical_crossentropy")
    network.fit(images, labels, batch_size=64, epochs=EPOCHS, verbose=0)
    return network


def rewrite(source: pathlib.Path, destination: pathlib.Path, dtype: str) -> None:
    """Rewrites a SavedModel with the command line, which prints its summary."""
    arguments = [
        *("-m", "tf_amp_rewriter", "--saved_model_dir", str(source)),
        *("--output_dir", str(destination), "--dtype", dtype),
    ]
    print("\n$ python " + " ".join(arguments), flush=True)
    subprocess.run([sys.executable, *arguments], check=True)


def predict(directory: pathlib.Path) -> Callable[[Images], Images]:
    """Returns the model's serving signature as a function from images to probabilities."""
    loaded = tf.saved_model.load(str(directory))
    signature = loaded.signatures["serving_default"]
    (name,) = signature.structured_input_signature[1]
    (output,) = signature.structured_outputs

    def call(images: Images) -> Images:
        # `loaded` owns the variables, so it has to live as long as this function
        return loaded.signatures["serving_default"](**{name: tf.constant(images)})[output].numpy()

    return call


if __name__ == "__main__":
    main()
