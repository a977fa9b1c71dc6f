"""Ops that no served model computes with, or that others decide about: they stay float32."""

from __future__ import annotations

from typing import Final

from tf_amp_rewriter.ops.rows import Category, OpRow

_SOURCE: Final = "TF 2.21 op definitions"

# Why they stay float32 -> their names.
_OPS: Final = {
    "an input pipeline takes and gives what its readers expect": """
        AnonymousIterator AnonymousIteratorV2 AnonymousIteratorV3 AnonymousMultiDeviceIterator
        AnonymousMultiDeviceIteratorV3 AssertCardinalityDataset AssertNextDataset
        AssertPrevDataset AutoShardDataset BatchDataset BatchDatasetV2 BytesProducedStatsDataset
        CSVDataset CSVDatasetV2 CacheDataset CacheDatasetV2 ChooseFastestBranchDataset
        ChooseFastestDataset CompressElement ConcatenateDataset DataServiceDataset
        DataServiceDatasetV2 DataServiceDatasetV3 DataServiceDatasetV4 DatasetToSingleElement
        DenseToSparseBatchDataset DirectedInterleaveDataset ExperimentalAssertNextDataset
        ExperimentalAutoShardDataset ExperimentalBytesProducedStatsDataset
        ExperimentalCSVDataset ExperimentalChooseFastestDataset
        ExperimentalDenseToSparseBatchDataset ExperimentalDirectedInterleaveDataset
        ExperimentalGroupByReducerDataset ExperimentalGroupByWindowDataset
        ExperimentalIgnoreErrorsDataset ExperimentalLMDBDataset ExperimentalLatencyStatsDataset
        ExperimentalMapAndBatchDataset ExperimentalMapDataset
        ExperimentalMaxIntraOpParallelismDataset ExperimentalNonSerializableDataset
        ExperimentalParallelInterleaveDataset ExperimentalParseExampleDataset
        ExperimentalPrivateThreadPoolDataset ExperimentalRandomDataset
        ExperimentalRebatchDataset ExperimentalScanDataset ExperimentalSetStatsAggregatorDataset
        ExperimentalSleepDataset ExperimentalSlidingWindowDataset ExperimentalSqlDataset
        ExperimentalTakeWhileDataset ExperimentalThreadPoolDataset ExperimentalUnbatchDataset
        ExperimentalUniqueDataset FilterByLastComponentDataset FilterDataset FinalizeDataset
        FlatMapDataset GeneratorDataset GetElementAtIndex GlobalShuffleDataset
        GroupByReducerDataset GroupByWindowDataset IgnoreErrorsDataset IndexFlatMapDataset
        InterleaveDataset Iterator IteratorFromStringHandle IteratorFromStringHandleV2
        IteratorGetNext IteratorGetNextAsOptional IteratorGetNextSync IteratorV2 LMDBDataset
        LatencyStatsDataset LegacyParallelInterleaveDatasetV2 ListDataset
        ListSnapshotChunksDataset LoadDataset MapAndBatchDataset MapDataset
        MaxIntraOpParallelismDataset ModelDataset MultiDeviceIterator
        MultiDeviceIteratorFromStringHandle MultiDeviceIteratorGetNextFromShard
        NonSerializableDataset OneShotIterator OptimizeDataset OptimizeDatasetV2 OptionsDataset
        PaddedBatchDataset PaddedBatchDatasetV2 ParallelBatchDataset ParallelFilterDataset
        ParallelInterleaveDataset ParallelInterleaveDatasetV2 ParallelInterleaveDatasetV3
        ParallelInterleaveDatasetV4 ParallelMapDataset ParallelMapDatasetV2 ParseExampleDataset
        ParseExampleDatasetV2 PrefetchDataset PrivateThreadPoolDataset RandomDataset
        RandomDatasetV2 RangeDataset RebatchDataset RebatchDatasetV2 ReduceDataset RepeatDataset
        RewriteDataset SamplingDataset SaveDataset SaveDatasetV2 ScanDataset
        SetStatsAggregatorDataset ShardDataset ShuffleAndRepeatDataset ShuffleAndRepeatDatasetV2
        ShuffleDataset ShuffleDatasetV2 ShuffleDatasetV3 SkipDataset SleepDataset
        SlidingWindowDataset SnapshotChunkDataset SnapshotDataset SnapshotDatasetReader
        SnapshotDatasetV2 SnapshotNestedDatasetReader SparseTensorSliceDataset SqlDataset
        TakeDataset TakeWhileDataset TensorDataset TensorSliceDataset ThreadPoolDataset
        UnbatchDataset UncompressElement UniqueDataset WeightedFlatMapDataset WindowDataset
        WindowOp ZipDataset
    """,
    "it writes logs or looks for faults": """
        CalibrationStatisticsSaver CheckPinned DebugGradientIdentity DebugGradientRefIdentity
        DebugIdentityV2 DebugIdentityV3 DebugNanCount DebugNumericSummary DebugNumericSummaryV2
        DumpTensor HistogramSummary ImageSummary ScalarSummary TensorSummary TensorSummaryV2
        WriteHistogramSummary WriteImageSummary WriteScalarSummary WriteSummary
    """,
    "it moves values between devices or machines, whose other ends expect float32": """
        AllToAll AssignVariableXlaConcatND CollectiveAllToAllV2 CollectiveAllToAllV3
        CollectiveBcastRecv CollectiveBcastRecvV2 CollectiveBcastSend CollectiveBcastSendV2
        CollectiveGather CollectiveGatherV2 CollectivePermute CollectiveReduce
        CollectiveReduceScatterV2 CollectiveReduceV2 CollectiveReduceV3 CopyToMesh
        CopyToMeshGrad CrossReplicaSum DTensorAllGather DTensorAllReduce DTensorAllScatter
        DTensorAllToAll DTensorReduceScatter DTensorRestoreV2
        DynamicEnqueueTPUEmbeddingArbitraryTensorBatch
        DynamicEnqueueTPUEmbeddingRaggedTensorBatch EnqueueTPUEmbeddingArbitraryTensorBatch
        EnqueueTPUEmbeddingRaggedTensorBatch EnqueueTPUEmbeddingSparseBatch
        EnqueueTPUEmbeddingSparseTensorBatch InfeedDequeue InfeedDequeueTuple InfeedEnqueue
        InfeedEnqueueTuple MergeDedupData NcclAllReduce NcclBroadcast NcclReduce OutfeedDequeue
        OutfeedDequeueTuple OutfeedDequeueTupleV2 OutfeedDequeueV2 OutfeedEnqueue
        OutfeedEnqueueTuple Prelinearize PrelinearizeTuple ReadVariableXlaSplitND Recv Relayout
        RelayoutLike RpcCall RpcGetValue RpcServerRegister Send SplitDedupData
        TPUAnnotateTensorsWithDynamicShape TPUCompile TPUCopyWithDynamicShape TPUDummyInput
        TPUExecute TPUExecuteAndUpdateVariables TPUPartitionedCall TPUPartitionedInput
        TPUPartitionedInputV2 TPUPartitionedOutput TPUPartitionedOutputV2 TPUReplicatedInput
        TPUReplicatedOutput
    """,
    "XLA makes it, or something for XLA, and decides on its precision itself": """
        RiscAbs RiscAdd RiscBinaryArithmetic RiscBinaryComparison RiscBitcast RiscBroadcast
        RiscCast RiscCeil RiscCholesky RiscConcat RiscCondition RiscConv RiscCos RiscDiv RiscDot
        RiscExp RiscFloor RiscGather RiscImag RiscIsFinite RiscLog RiscMax RiscMin RiscMul
        RiscNeg RiscPad RiscPool RiscPow RiscReal RiscReduce RiscRem RiscReshape RiscReverse
        RiscScatter RiscShape RiscSign RiscSlice RiscSort RiscSqueeze RiscSub RiscTranspose
        RiscTriangularSolve RiscUnary RiscWhile XlaAllReduce XlaBroadcastHelper XlaClusterOutput
        XlaConcatND XlaCustomCall XlaCustomCallV2 XlaHostCompute XlaIf XlaLaunchV2 XlaRecv
        XlaRecvFromHost XlaReducePrecision XlaReduceScatter XlaRemoveDynamicDimensionSize
        XlaSelfAdjointEig XlaSend XlaSendToHost XlaSetDynamicDimensionSize
        XlaSparseActivationsUnstack XlaSparseDenseMatmulGradWithCsrInput
        XlaSparseDenseMatmulWithCsrInput XlaSparseGradientsStack XlaSplitND
        XlaSpmdFullToShardShape XlaSpmdShardToFullShape XlaSvd XlaVariadicReduce XlaWhile
    """,
    "it trains a variable, which stays float32 for that": """
        AccumulatorApplyGradient AccumulatorTakeGradient ApplyAdaMax ApplyAdadelta ApplyAdagrad
        ApplyAdagradDA ApplyAdagradV2 ApplyAdam ApplyAddSign ApplyCenteredRMSProp ApplyFtrl
        ApplyFtrlV2 ApplyGradientDescent ApplyMomentum ApplyPowerSign ApplyProximalAdagrad
        ApplyProximalGradientDescent ApplyRMSProp ConditionalAccumulator
        ResourceAccumulatorApplyGradient ResourceAccumulatorTakeGradient ResourceApplyAdaMax
        ResourceApplyAdadelta ResourceApplyAdagrad ResourceApplyAdagradDA ResourceApplyAdagradV2
        ResourceApplyAdam ResourceApplyAdamWithAmsgrad ResourceApplyAddSign
        ResourceApplyCenteredRMSProp ResourceApplyFtrl ResourceApplyFtrlV2
        ResourceApplyGradientDescent ResourceApplyKerasMomentum ResourceApplyMomentum
        ResourceApplyPowerSign ResourceApplyProximalAdagrad ResourceApplyProximalGradientDescent
        ResourceApplyRMSProp ResourceConditionalAccumulator ResourceSparseApplyAdadelta
        ResourceSparseApplyAdagrad ResourceSparseApplyAdagradDA ResourceSparseApplyAdagradV2
        ResourceSparseApplyCenteredRMSProp ResourceSparseApplyFtrl ResourceSparseApplyFtrlV2
        ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum
        ResourceSparseApplyProximalAdagrad ResourceSparseApplyProximalGradientDescent
        ResourceSparseApplyRMSProp SparseAccumulatorApplyGradient SparseAccumulatorTakeGradient
        SparseApplyAdadelta SparseApplyAdagrad SparseApplyAdagradDA SparseApplyAdagradV2
        SparseApplyCenteredRMSProp SparseApplyFtrl SparseApplyFtrlV2 SparseApplyMomentum
        SparseApplyProximalAdagrad SparseApplyProximalGradientDescent SparseApplyRMSProp
        SparseConditionalAccumulator
    """,
    "it changes a variable, which stays float32 for that": """
        Assign AssignAdd AssignAddVariableOp AssignSub AssignSubVariableOp AssignVariableOp
        ResourceScatterAdd ResourceScatterDiv ResourceScatterMax ResourceScatterMin
        ResourceScatterMul ResourceScatterNdAdd ResourceScatterNdMax ResourceScatterNdMin
        ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub ResourceScatterUpdate
        ResourceStridedSliceAssign ScatterAdd ScatterDiv ScatterMax ScatterMin ScatterMul
        ScatterNdAdd ScatterNdMax ScatterNdMin ScatterNdSub ScatterNdUpdate ScatterSub
        ScatterUpdate StridedSliceAssign
    """,
    "its floats are the ranges and scales of quantised values": """
        QuantizedConcat QuantizedConcatV2 QuantizedConv2DWithBiasAndReluAndRequantize
        QuantizedConv2DWithBiasAndRequantize
        QuantizedConv2DWithBiasSignedSumAndReluAndRequantize
        QuantizedConv2DWithBiasSumAndReluAndRequantize
        QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize QuantizedMatMulWithBias
        QuantizedMatMulWithBiasAndDequantize QuantizedMatMulWithBiasAndReluAndRequantize
        QuantizedMatMulWithBiasAndRequantize QuantizedReshape QuantizedResizeBilinear
    """,
    "it holds, counts or tests values of any type": """
        GetSessionHandle GetSessionHandleV2 GetSessionTensor MapClear MapIncompleteSize MapSize
        OrderedMapClear OrderedMapIncompleteSize OrderedMapSize StageClear StageSize ToBool
    """,
    "random numbers of another type are other numbers": """
        NonDeterministicInts
    """,
    "a gradient or a sum over segments in a newer form, of which nothing was measured": """
        Conv2DBackpropFilterV2 Conv2DBackpropInputV2 SegmentMaxV2 SegmentMinV2 SegmentProdV2
        SegmentSumV2
    """,
    "TensorFlow makes it when a session starts; no model that is saved holds it": """
        _ArrayToList _CopyFromGpuToHost _CopyFromHostToGpu _DeviceArg _DeviceRetval _EagerConst
        _FusedBatchNormGradEx _FusedQuantizedConv2D _FusedQuantizedDepthwiseConv2D _HostCast
        _HostRecv _HostSend _If _ListToArray _MklAvgPool _MklAvgPool3D _MklAvgPool3DGrad
        _MklAvgPoolGrad _MklBatchMatMul _MklBatchMatMulV2 _MklConcat _MklConcatV2
        _MklConjugateTranspose _MklConv2D _MklConv2DBackpropFilter
        _MklConv2DBackpropFilterWithBias _MklConv2DBackpropInput _MklConv2DWithBias _MklConv3D
        _MklConv3DBackpropFilterV2 _MklConv3DBackpropInputV2 _MklDepthwiseConv2dNative
        _MklDepthwiseConv2dNativeBackpropFilter _MklDepthwiseConv2dNativeBackpropInput
        _MklDequantize _MklEinsum _MklElu _MklEluGrad _MklFusedBatchMatMulV2 _MklFusedBatchNorm
        _MklFusedBatchNormEx _MklFusedBatchNormGrad _MklFusedBatchNormGradV2
        _MklFusedBatchNormGradV3 _MklFusedBatchNormV2 _MklFusedBatchNormV3 _MklFusedConv2D
        _MklFusedDepthwiseConv2dNative _MklFusedInstanceNorm _MklFusedMatMul _MklFusedMish
        _MklLayerNorm _MklLeakyRelu _MklLeakyReluGrad _MklMatMul _MklMaxPool _MklMaxPool3D
        _MklMaxPool3DGrad _MklMaxPoolGrad _MklNativeAvgPool _MklNativeAvgPool3D
        _MklNativeAvgPool3DGrad _MklNativeAvgPoolGrad _MklNativeConv2D
        _MklNativeConv2DBackpropFilter _MklNativeConv2DBackpropFilterWithBias
        _MklNativeConv2DBackpropInput _MklNativeConv2DWithBias _MklNativeConv3D
        _MklNativeConv3DBackpropFilterV2 _MklNativeConv3DBackpropInputV2
        _MklNativeDepthwiseConv2dNative _MklNativeDepthwiseConv2dNativeBackpropFilter
        _MklNativeDepthwiseConv2dNativeBackpropInput _MklNativeFusedBatchNorm
        _MklNativeFusedBatchNormEx _MklNativeFusedBatchNormGrad _MklNativeFusedBatchNormGradV2
        _MklNativeFusedBatchNormGradV3 _MklNativeFusedBatchNormV2 _MklNativeFusedBatchNormV3
        _MklNativeFusedConv2D _MklNativeFusedConv3D _MklNativeFusedDepthwiseConv2dNative
        _MklNativeFusedMatMul _MklNativeMaxPool _MklNativeMaxPool3D _MklNativeMaxPool3DGrad
        _MklNativeMaxPoolGrad _MklNativePadWithConv2D _MklNativePadWithFusedConv2D
        _MklNativeSparseMatrixMatMul _MklPadWithConv2D _MklPadWithFusedConv2D
        _MklQuantizedConcatV2 _MklQuantizedConv2DWithBiasAndReluAndRequantize
        _MklQuantizedConv2DWithBiasAndRequantize
        _MklQuantizedConv2DWithBiasSignedSumAndReluAndRequantize
        _MklQuantizedConv2DWithBiasSumAndReluAndRequantize
        _MklQuantizedDepthwiseConv2DWithBiasAndReluAndRequantize _MklQuantizedMatMulWithBias
        _MklQuantizedMatMulWithBiasAndDequantize _MklQuantizedMatMulWithBiasAndReluAndRequantize
        _MklQuantizedMatMulWithBiasAndRequantize _MklRelu _MklRelu6 _MklRelu6Grad _MklReluGrad
        _MklSoftmax _MklSwish _MklTanh _MklTanhGrad _MklTranspose _NcclBroadcastRecv
        _NcclBroadcastSend _NcclReduceRecv _NcclReduceSend _ParallelConcatStart
        _ParallelConcatUpdate _QuantizedMatMul _ReadVariablesOp _Recv _ScopedAllocator
        _ScopedAllocatorConcat _ScopedAllocatorSplit _Send _TPUReplicate _UnaryOpsComposition
        _VarHandlesOp _While _XlaAotOnlyVarHandleOp _XlaCompile _XlaHostComputeMlir _XlaMerge
        _XlaRecvAtHost _XlaRecvAtHostV2 _XlaRun _XlaSendFromHost _XlaSendFromHostV2
        __MklDummyConv2DBackpropFilterWithBias __MklDummyConv2DWithBias __MklDummyPadWithConv2D
        __MklDummyPadWithFusedConv2D
    """,
    "an op of TensorFlow's own tests": """
        AttrListTypeDefault AttrTypeDefault Binary ComplexStruct CopyOp DefaultAttrs
        DtypeWithDefaultOp InPolymorphicTwice ListInput ListOutput NInPolymorphicTwice
        NInTwoTypeVariables NPolymorphicIn NPolymorphicOut NPolymorphicOutDefault OutT
        OutTypeList Polymorphic PolymorphicDefaultOut PolymorphicOut RefIn RefOut
        SleepIdentityOp TestAttr TwoRefsIn TypeList TypeListTwice Unary
    """,
}

ROWS: Final[tuple[OpRow, ...]] = tuple(
    OpRow(op, Category.KEEP, _SOURCE, note=note) for note, ops in _OPS.items() for op in ops.split()
)
