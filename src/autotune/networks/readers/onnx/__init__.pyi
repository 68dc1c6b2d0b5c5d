from autotune.networks.readers.onnx.source import OnnxNetwork as OnnxNetwork
from autotune.networks.readers.onnx.source import read_onnx as read_onnx
